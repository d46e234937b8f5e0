"""What the demonstration shows, step by step. Each step waits until it is seen, and fails after its deadline."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import define

from llmgw_core.cli.asking import ask
from llmgw_core.cli.context import Context
from llmgw_core.cli.deploying import render_changes
from llmgw_core.cli.draining import render_drains
from llmgw_core.cli.fleet import render_nodes
from llmgw_core.cli.replicas import render_replicas
from llmgw_core.demo.fleet import NODES, DemoFailed, DemoFleet, wait_for

NODES_S = 60.0
READY_S = 120.0
REQUEST_S = 60.0

CATALOG = """\
# A model on one node, twice, and one over two nodes of one fabric. The engine is the simulated one.
[models.haiku]
source = "sim/haiku"
replicas = 2
profiles = ["haiku-1gpu"]

[models.saga]
source = "sim/saga"
profiles = ["saga-2x2"]

[profiles.haiku-1gpu]
engine = "sim"
engine_key = false
gpus_per_node = 1
extra_args = ["--load-time", "1", "--tokens-per-second", "50"]

[profiles.saga-2x2]
engine = "sim"
engine_key = false
nodes = 2
gpus_per_node = 2
tensor_parallel = 4
extra_args = ["--load-time", "1", "--tokens-per-second", "50"]
"""

LLAMA = """
# A real llama.cpp with a tiny model.
[models.tiny]
source = "{gguf}"
profiles = ["tiny-cpu"]

[profiles.tiny-cpu]
engine = "llamacpp"
engine_key = false
context_length = 512
extra_args = ["--threads", "1"]
"""


@define
class Story:
    fleet: DemoFleet
    say: Callable[[str], None]
    gguf: Path | None = None
    """The weights for the real llama.cpp, where there is one."""

    @property
    def context(self) -> Context:
        return Context(self.fleet.context, None, None)

    def tell(self) -> None:
        self._head("An authority, a control plane, and four nodes on two fabrics")
        self.fleet.make_authority()
        self.fleet.start()
        self._see_nodes()
        self._head("A catalog is applied, and its replicas come up")
        self._apply()
        self._see_ready()
        self._head("One completion from each")
        self._complete_all()
        self._head("kill -9 of a worker: the replica is stopped and started again, as a whole")
        self._kill_a_worker()
        self._head("A node is drained: each replacement is ready before its original stops")
        self._drain_a_node()
        self._head("How it is now")
        self.say(render_replicas(self.replicas()))

    def replicas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(self.context, "replicas")
        return found

    def _head(self, text: str) -> None:
        self.say(f"\n== {text}")

    def _see_nodes(self) -> None:
        wait_for(lambda: self.fleet.context.exists() and self._answers(), "the control plane answers", NODES_S)
        wait_for(self._nodes_are_complete, "four nodes online, with their GPUs and engines", NODES_S)
        self.say(render_nodes(ask(self.context, "nodes")))

    def _answers(self) -> bool:
        self.fleet.check_alive()
        try:
            ask(self.context, "nodes")
        except (Exception, BaseExceptionGroup):
            return False
        return True

    def _nodes_are_complete(self) -> bool:
        self.fleet.check_alive()
        nodes = ask(self.context, "nodes")
        return len(nodes) == len(NODES) and all(map(_is_complete, nodes))

    def _apply(self) -> None:
        catalog = self.fleet.directory / "catalog.toml"
        catalog.write_text(CATALOG + (LLAMA.format(gguf=self.gguf) if self.gguf else ""), encoding="utf-8")
        text = catalog.read_text(encoding="utf-8")
        self.say(render_changes(ask(self.context, "apply", name=str(catalog), text=text)))

    def _see_ready(self, id: str = "", generation: int = 0) -> None:
        """All replicas, or that one in a newer generation; each change of state is said."""
        told: dict[str, str] = {}

        def look() -> bool:
            self.fleet.check_alive()
            found = [each for each in self.replicas() if not id or each["id"] == id]
            for each in found:
                line = f"{each['id']} generation {each['generation']}: {each['state']}"
                if told.get(each["id"]) != line:
                    told[each["id"]] = line
                    self.say(f"  {line} on {', '.join(each['nodes']) or 'no node'}  {each['reason']}".rstrip())
            return bool(found) and all(each["state"] == "ready" and each["generation"] > generation for each in found)

        wait_for(look, "every replica ready", READY_S)

    def _complete_all(self) -> None:
        models = sorted({each["model"] for each in self.replicas()})
        for model in models:
            replica = next(each for each in self.replicas() if each["model"] == model)
            self.say(f"  {replica['id']} at {replica['address']} says: {complete(replica['address'], model)!r}")

    def _kill_a_worker(self) -> None:
        saga = ask(self.context, "replica", replica="saga/1")
        worker = saga["shards"][1]
        self.say(f"  kill -9 {worker['pid']}, the worker of saga/1 on {worker['node']}")
        os.kill(worker["pid"], signal.SIGKILL)
        self._see_ready("saga/1", saga["generation"])
        failure = ask(self.context, "replica", replica="saga/1")["last_failure"]
        self.say(f"  why it was started again: {failure['reason']} ({failure['exit']})")
        replica = next(each for each in self.replicas() if each["id"] == "saga/1")
        self.say(f"  saga/1 says again: {complete(replica['address'], 'saga')!r}")

    def _drain_a_node(self) -> None:
        """Of the replica over two nodes, which moves as a whole. No model ever has fewer ready than before."""
        node = ask(self.context, "replica", replica="saga/1")["nodes"][0]
        before, fewest, told = self._count_ready(), self._count_ready(), ""
        self.say(f"  llmgw ctl drain {node}")
        ask(self.context, "drain", nodes=[node])

        def look() -> bool:
            nonlocal fewest, told
            self.fleet.check_alive()
            (status,) = ask(self.context, "drains", nodes=[node])
            now = self._count_ready()
            fewest = {model: min(count, now.get(model, 0)) for model, count in fewest.items()}
            if render_drains([status]) != told:
                told = render_drains([status])
                self.say("\n".join(f"  {line}" for line in told.splitlines()))
            return bool(status["state"] == "drained")

        wait_for(look, f"{node} drained", READY_S)
        if fewest != before:
            raise DemoFailed(f"ready replicas fell from {before} to {fewest} while {node} drained")
        self.say(f"  ready all the time: {', '.join(f'{model} {count}' for model, count in sorted(before.items()))}")
        self.say(f"  llmgw ctl undrain {node}")
        ask(self.context, "undrain", nodes=[node])

    def _count_ready(self) -> dict[str, int]:
        """By model."""
        return dict(Counter(each["model"] for each in self.replicas() if each["state"] == "ready"))


def _is_complete(node: dict[str, Any]) -> bool:
    facts = node["facts"] or {}
    engines = {each["engine"]: each.get("outcome") for each in facts.get("engines", ())}
    return node["state"] == "online" and bool(facts.get("gpus", {}).get("gpus")) and engines.get("sim") == "accepted"


def complete(address: str, model: str) -> str:
    """What a model says, asked at its head's address; raises `DemoFailed`."""
    body = json.dumps({"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "Who are you?"}]})
    connection = http.client.HTTPConnection(address, timeout=REQUEST_S)
    try:
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise DemoFailed(f"{model} at {address} does not answer: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise DemoFailed(f"{model} at {address} answers {answer.status}: {text[:200]!r}")
    said: str = json.loads(text)["choices"][0]["message"]["content"]
    return said


def next_lines(fleet: DemoFleet) -> Sequence[str]:
    """What to type next, while it goes on running."""
    ctl = f"llmgw ctl --context {fleet.context}"
    return (
        f"{ctl} nodes",
        f"{ctl} replicas --watch",
        f"{ctl} replica saga/1",
        f"{ctl} logs saga/1 --follow",
        f"{ctl} scale haiku 6",
        f"{ctl} drain gpu-03",
        f"{ctl} undrain gpu-03",
        f"{ctl} explain saga",
        f"{ctl} events --follow",
    )

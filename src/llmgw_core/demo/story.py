"""What the demonstration shows, step by step. Each step waits until it is seen, and fails after its deadline."""

from __future__ import annotations

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
from llmgw_core.demo.users import Unanswered, Users, ask_model

NODES_S = 60.0
READY_S = 120.0

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
gpus_per_node = 1
extra_args = ["--load-time", "1", "--tokens-per-second", "50"]

[profiles.saga-2x2]
engine = "sim"
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
        self._head("One completion from each, at one address")
        self._complete_all()
        self._head("kill -9 of a worker: the replica is stopped and started again, as a whole")
        self._kill_a_worker()
        self._head("A node is drained: each replacement is ready before its original stops, and users ask all the time")
        users = Users(self.fleet.gateway, self._models())
        with users.asking():
            self._drain_a_node()
        self._judge(users)
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
            return bool(found) and all(each["routed"] and each["generation"] > generation for each in found)

        wait_for(look, "every replica ready", READY_S)

    def _complete_all(self) -> None:
        self.say(f"  curl http://{self.fleet.gateway}/v1/models")
        for model in self._models():
            self.say(f"  {model} says: {self._complete(model)!r}")

    def _models(self) -> list[str]:
        return sorted({each["model"] for each in self.replicas()})

    def _complete(self, model: str) -> str:
        try:
            return ask_model(self.fleet.gateway, model)
        except Unanswered as error:
            raise DemoFailed(f"{model} does not answer: {error}") from error

    def _kill_a_worker(self) -> None:
        saga = ask(self.context, "replica", replica="saga/1")
        worker = saga["shards"][1]
        self.say(f"  kill -9 {worker['pid']}, the worker of saga/1 on {worker['node']}")
        os.kill(worker["pid"], signal.SIGKILL)
        self._see_ready("saga/1", saga["generation"])
        failure = ask(self.context, "replica", replica="saga/1")["last_failure"]
        self.say(f"  why it was started again: {failure['reason']} ({failure['exit']})")
        self.say(f"  saga says again: {self._complete('saga')!r}")

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

    def _judge(self, users: Users) -> None:
        if users.failures or not users.answered:
            raise DemoFailed(f"{len(users.failures)} requests failed meanwhile: {'; '.join(users.failures[:3])}")
        self.say(f"  requests meanwhile, plain and streamed: {users.answered} answered whole, 0 failed")

    def _count_ready(self) -> dict[str, int]:
        """By model."""
        return dict(Counter(each["model"] for each in self.replicas() if each["state"] == "ready"))


def _is_complete(node: dict[str, Any]) -> bool:
    facts = node["facts"] or {}
    engines = {each["engine"]: each.get("outcome") for each in facts.get("engines", ())}
    return node["state"] == "online" and bool(facts.get("gpus", {}).get("gpus")) and engines.get("sim") == "accepted"


def next_lines(fleet: DemoFleet) -> Sequence[str]:
    """What to type next, while it goes on running."""
    ctl = f"llmgw ctl --context {fleet.context}"
    return (
        f"curl http://{fleet.gateway}/v1/models",
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

"""Four real nodes on two fabrics, for the tests of a module: each test finds them all there, with nothing on them."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

from llmgw_core.testing.cluster import ASK_S, Cluster, Daemon, running_cluster, wait_until

FABRICS = {"n1": "ib-a", "n2": "ib-a", "n3": "ib-b", "n4": "ib-b"}
NODES = tuple(FABRICS)
GPUS = 2
SOAK_S = 0.5
SAMPLE_S = 0.05


@define(eq=False)
class FourNodes:
    cluster: Cluster
    control: Daemon = field(init=False)
    agents: dict[str, Daemon] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.start_control()
        for name in NODES:
            self.start_agent(name)
        self.cluster.wait_until_looked(*NODES)

    def start_control(self) -> None:
        self.control = self.cluster.start_control("--soak", str(SOAK_S))

    def start_agent(self, name: str) -> None:
        self.agents[name] = self.cluster.start_agent(name, gpus=GPUS, fabric=FABRICS[name])

    def place(self, *models: str) -> dict[str, dict[str, Any]]:
        """As `apply`, on empty nodes: places are chosen among all of them, and leave as much room as they can."""
        self.cluster.offer("\n".join(models))
        return self.apply(*models)

    def apply(self, *models: str) -> dict[str, dict[str, Any]]:
        """All replicas, as soon as they are ready."""
        self.cluster.apply("\n".join(models))
        wait_until(self._is_settled, "all replicas ready", every_s=ASK_S)
        return self.cluster.replicas()

    def _is_settled(self) -> bool:
        models, replicas = self.cluster.ask("models"), self.cluster.replicas().values()
        # The state is what is seen now, `ready_at` what was decided of it a moment later.
        as_wanted = [each["state"] == "ready" and each["ready_at"] and not each["outdated"] for each in replicas]
        return all(as_wanted) and len(as_wanted) == sum(each["wanted"] for each in models)

    def drain(self, *words: str) -> None:
        self.cluster.ctl("drain", *words, "--no-wait")

    def drains(self) -> dict[str, dict[str, Any]]:
        return {each["node"]: each for each in self.cluster.ask("drains")}

    def wait_for_drain(self, node: str, state: str = "drained") -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            status = self.drains().get(node, {})
            return status if status.get("state") == state else None

        try:
            status: dict[str, Any] = wait_until(found, f"{node} {state}", every_s=ASK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.drains(), indent=2)}") from None
        return status

    def nodes_of(self, id: str) -> list[str]:
        return list(self.cluster.replicas()[id]["nodes"])

    def ready(self) -> Counter[str]:
        return Counter(each["model"] for each in self.cluster.replicas().values() if each["state"] == "ready")

    @contextmanager
    def never_fewer_ready(self) -> Iterator[None]:
        """No model has fewer ready replicas while the block runs than at its start."""
        before, over = self.ready(), threading.Event()
        seen = [before]

        def sample() -> None:
            while not over.wait(SAMPLE_S):
                seen.append(self.ready())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield
        finally:
            over.set()
            sampler.join()
        seen.append(self.ready())
        fewest = {model: min(each[model] for each in seen) for model in before}
        assert fewest == dict(before)

    def restore(self) -> None:
        """All nodes are there and take replicas, and nothing runs."""
        if self.control.process.poll() is not None:
            self.start_control()
        for name in NODES:
            self.agents[name].signal(signal.SIGCONT)
            if self.agents[name].process.poll() is not None:
                self.start_agent(name)
        for name in NODES:
            self.cluster.wait_for_state(name, "online")
        for name in self.drains():
            self.cluster.ask("undrain", nodes=[name])
        self.cluster.apply("")
        # What a killed control plane had begun belongs to no replica any more, and may take longer to stop than those.
        wait_until(self._is_empty, "all replicas and processes gone", every_s=ASK_S)

    def _is_empty(self) -> bool:
        return not self.cluster.replicas() and not self.cluster.shard_processes()


@contextmanager
def four_nodes(directory: Path, **given: Any) -> Iterator[FourNodes]:
    with running_cluster(directory, **given) as cluster:
        yield FourNodes(cluster)

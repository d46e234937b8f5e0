"""A node's runtime without a control plane: real reapers and engines, ordered about by a test.

What a block leaves behind is killed at its end, by the markers that its processes carry.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from llmgw_core.agent.family import kill
from llmgw_core.agent.housing import Housing, OwnSession
from llmgw_core.agent.node import agent_digest
from llmgw_core.agent.processes import read_processes
from llmgw_core.agent.runtime import Runtime
from llmgw_core.discovery.engines import Named
from llmgw_core.model.catalog import HealthTimings, Profile
from llmgw_core.model.launch import Launch, Offer, Place, RunShard, Stage, StopShard
from llmgw_core.model.node import PortRange
from llmgw_core.model.shard import ShardPhase, ShardStatus
from llmgw_core.plan.shard_tree import Process
from llmgw_core.plugins import load_engines
from llmgw_core.testing.ports import SMALL, claim, first_port, free_port

SIM = str(Path(sys.executable).with_name("llmgw-sim"))
DEADLINE_S = 60.0
"""For one wait; only a test that fails takes so long."""
QUICK = HealthTimings(probe_every_s=0.1, misses=2)


def a_launch(
    *extra_args: str, model: str = "m", generation: int = 1, nodes: int = 1, ports: Sequence[int] = (), **profile: Any
) -> Launch:
    """A sim replica, all of its shards on this machine."""
    given = {"engine": "sim", "nodes": nodes, "extra_args": extra_args, "health": QUICK, **profile}
    offer = Offer(f"key-{model}", model, f"/models/{model}", "p", Profile(**given))
    chosen = ports or [free_port() for _ in range(nodes)]
    places = tuple(Place(f"n{rank}", "127.0.0.1", port, gpus=(f"GPU-{rank}",)) for rank, port in enumerate(chosen))
    return Launch(f"{model}/1", generation, offer, places, free_port() if nodes > 1 else None)


def marked_processes(state: Path) -> tuple[Process, ...]:
    """All that runs of an agent's shards, the reapers too."""
    return tuple(each for each in read_processes(agent_digest(state)).values() if each.marker and each.lives)


async def wait_until(condition: Callable[[], Any], what: str) -> Any:
    with trio.move_on_after(DEADLINE_S):
        while not (found := condition()):  # noqa: ASYNC110 - what it waits for is other programs'
            await trio.sleep(0.01)
        return found
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


@define(eq=False)
class RunningNode:
    runtime: Runtime
    nursery: trio.Nursery
    seen: list[tuple[ShardStatus, ...]] = field(factory=list)
    """Every list that was told."""

    def run(self, launch: Launch, rank: int = 0, stage: Stage = Stage.RUN) -> None:
        self.runtime.order(RunShard(launch, rank, stage))

    def ask_to_stop(self, launch: Launch, rank: int = 0, in_flight_s: float = 0.0) -> None:
        self.runtime.order(StopShard(launch.replica, launch.generation, rank, in_flight_s))

    def reason(self, launch: Launch, rank: int = 0) -> str:
        status = self.status(launch, rank)
        return status.reason if status is not None else ""

    def status(self, launch: Launch, rank: int = 0) -> ShardStatus | None:
        key = (launch.replica, launch.generation, rank)
        for each in self.runtime.statuses():
            if (each.replica, each.generation, each.rank) == key:
                return each
        return None

    async def wait(self, launch: Launch, *phases: ShardPhase, rank: int = 0) -> ShardStatus:
        """The shard's status, as soon as it is in one of these phases."""

        def there() -> ShardStatus | None:
            status = self.status(launch, rank)
            if status is not None and status.failure is not None and not {ShardPhase.FAILED, status.phase} & {*phases}:
                raise AssertionError(f"it failed: {status.failure}")
            return status if status is not None and status.phase in phases else None

        try:
            found: ShardStatus = await wait_until(there, "")
        except AssertionError as error:
            raise AssertionError(f"{error} {phases}: {self.status(launch, rank)}") from None
        return found

    async def ready(self, launch: Launch, rank: int = 0) -> ShardStatus:
        self.run(launch, rank)
        return await self.wait(launch, ShardPhase.READY, rank=rank)

    async def stop(self, launch: Launch, rank: int = 0) -> None:
        self.ask_to_stop(launch, rank)
        await wait_until(lambda: self.status(launch, rank) is None, "the shard gone")

    def phases(self, launch: Launch, rank: int = 0) -> list[ShardPhase]:
        """Those that were told, each once where it did not change."""
        told: list[ShardPhase] = []
        for statuses in self.seen:
            for each in statuses:
                mine = (each.replica, each.generation, each.rank) == (launch.replica, launch.generation, rank)
                if mine and told[-1:] != [each.phase]:
                    told.append(each.phase)
        return told

    async def _follow(self) -> None:
        while True:
            self.seen.append(await self.runtime.wait_other_than(self.seen[-1] if self.seen else None))

    def end(self) -> None:
        """As the agent ends: what runs goes on."""
        self.nursery.cancel_scope.cancel()


@asynccontextmanager
async def running_node(
    state: Path,
    *,
    sim: str = SIM,
    housing: Housing | None = None,
    leave: bool = False,
    environ: Mapping[str, str] = os.environ,
    look_at_weights: Callable[[str], str] = lambda _: "",
    **told: Any,
) -> AsyncIterator[RunningNode]:
    """With `leave`, what runs at the end goes on, for the next one on the same state."""
    guard = claim(SMALL)
    first = first_port(guard)
    runtime = Runtime(
        engines=load_engines({"sim"}),
        state=state,
        named=Named({"sim": {"llmgw-sim": (sim,)}}, environ),
        look_at_weights=look_at_weights,
        serve_ports=PortRange(first + 1, first + SMALL.size - 1),
        environ=environ,
        housing=housing or OwnSession(),
        **told,
    )
    runtime.read()
    try:
        async with trio.open_nursery() as nursery:
            node = RunningNode(runtime, nursery)
            nursery.start_soon(runtime.run)
            nursery.start_soon(node._follow)
            yield node
            nursery.cancel_scope.cancel()
    except BaseException:
        leave = False
        raise
    finally:
        if not leave:
            left = runtime.shards.own_processes(read_processes(agent_digest(state)))
            kill({each.id for each in (*left.values(), *marked_processes(state))})
        guard.close()

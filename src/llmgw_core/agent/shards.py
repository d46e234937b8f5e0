"""All shards of this node: orders in, what runs out.

Rules: an order counts at once, so that the list that is said next has it; an attempt that is older than the highest
seen of its replica is not begun but answered with that highest one, as a shard that failed, until it is told to stop: a
control plane that has forgotten it (a store from a backup) learns what to go above; two attempts at one replica may
run, while it moves; a shard is in the list until nothing of it is left.
"""

from __future__ import annotations

import logging

import trio
from attrs import define, field

from llmgw_core.agent.attempt import WANTED, Attempt, adopt, begin
from llmgw_core.agent.logs import read_log
from llmgw_core.agent.node import Node
from llmgw_core.agent.shard_files import Kept
from llmgw_core.model.launch import Launch, Order, RunShard, StopShard
from llmgw_core.model.shard import ShardFailure, ShardPhase, ShardStatus
from llmgw_core.plan.shard_tree import Process, members
from llmgw_core.wire.message import LogRead, ReadLog

_Key = tuple[str, int, int]
_log = logging.getLogger("llmgw.agent")


@define(eq=False)
class Shards:
    node: Node
    _attempts: dict[_Key, Attempt] = field(factory=dict)
    _begun: trio.Event = field(factory=trio.Event)
    _waiting: list[Attempt] = field(factory=list)
    _changed: trio.Event = field(factory=trio.Event)
    _refused: dict[tuple[str, int], ShardStatus] = field(factory=dict)
    """By replica and rank, what is said of an order that was too old."""

    def read(self) -> None:
        """What the last agent left; blocks, so it is for the start."""
        self.node.files.read_highest()
        for kept in self.node.files.read_all():
            self._adopt(kept)

    def _adopt(self, kept: Kept) -> None:
        launch = kept.order.launch
        self._raise_highest(launch.replica, launch.generation)
        self.node.lent_ports.update(kept.sidecar_ports.values())
        key = (launch.replica, kept.order.rank, launch.generation)
        self._add(key, adopt(self.node, kept, self._tell))

    async def live(self) -> None:
        """One task for each attempt, until cancelled, which leaves all as it is."""
        async with trio.open_nursery() as nursery:
            while True:
                self._begun = trio.Event()
                for attempt in self._waiting:
                    nursery.start_soon(self._live, attempt)
                self._waiting = []
                await self._begun.wait()

    async def _live(self, attempt: Attempt) -> None:
        await attempt.live()
        del self._attempts[attempt.key]
        self._tell()

    def order(self, order: Order) -> None:
        """Counts at once; carried out by the shard's own task. Safe to repeat."""
        match order:
            case RunShard():
                self._run(order)
            case StopShard(replica=replica, generation=generation, rank=rank, in_flight_s=in_flight_s):
                self._raise_highest(replica, generation)
                refused = self._refused.get((replica, rank))
                if refused is not None and refused.generation <= generation:
                    del self._refused[replica, rank]
                    self._tell()
                if attempt := self._attempts.get((replica, rank, generation)):
                    attempt.stop(in_flight_s)

    def _run(self, order: RunShard) -> None:
        launch = order.launch
        key = (launch.replica, order.rank, launch.generation)
        if key in self._attempts:
            self._attempts[key].renew(launch)
            self._attempts[key].want(WANTED[order.stage])
            return
        highest = self.node.files.highest.get(launch.replica, 0)
        if launch.generation < highest:
            self._refuse(launch, order.rank, highest)
            return
        self._refused.pop((launch.replica, order.rank), None)
        self._raise_highest(launch.replica, launch.generation)
        self._add(key, begin(self.node, order, self._tell))

    def _refuse(self, launch: Launch, rank: int, highest: int) -> None:
        reason = f"generation {launch.generation} was ordered, and this node has seen {highest}"
        _log.warning("order refused", extra={"shard": launch.shard_id(rank), "reason": reason})
        self._refused[launch.replica, rank] = ShardStatus(
            launch.replica, highest, rank, ShardPhase.FAILED, reason, ShardFailure("old order", reason)
        )

    def _add(self, key: _Key, attempt: Attempt) -> None:
        self._attempts[key] = attempt
        self._waiting.append(attempt)
        self._begun.set()
        self._tell()

    def _raise_highest(self, replica: str, generation: int) -> None:
        self.node.files.highest[replica] = max(generation, self.node.files.highest.get(replica, 0))

    def statuses(self) -> tuple[ShardStatus, ...]:
        listed = {key: attempt.status() for key, attempt in self._attempts.items()}
        refused = {(replica, rank, said.generation): said for (replica, rank), said in self._refused.items()}
        all_said = {**refused, **listed}  # what runs says more
        return tuple(all_said[key] for key in sorted(all_said))

    async def wait_other_than(self, said: tuple[ShardStatus, ...] | None) -> tuple[ShardStatus, ...]:
        """The list, as soon as it is another."""
        while (now := self.statuses()) == said:
            await self._changed.wait()
        return now

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def read_log(self, ask: ReadLog) -> LogRead:
        return await trio.to_thread.run_sync(read_log, self.node.files, ask, abandon_on_cancel=True)

    def own_processes(self, table: dict[int, Process]) -> dict[int, Process]:
        """By pid, those of all shards, the reapers too."""
        own: dict[int, Process] = {}
        for attempt in self._attempts.values():
            own |= {each.pid: each for each in members(table, attempt.family.kin)}
            reaper = attempt.family.kin.reaper
            if reaper is not None and reaper.pid in table:
                own[reaper.pid] = table[reaper.pid]
        return own

    def markers(self) -> frozenset[str]:
        return frozenset(attempt.marker for attempt in self._attempts.values())

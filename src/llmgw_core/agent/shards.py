"""All shards of this node: orders in, what runs out.

Rules: an order counts at once, so that the list that is said next has it; an order to begin an attempt that is older
than the highest seen of its replica is ignored; two attempts at one replica may run, while it moves; a shard is in the
list until nothing of it is left.
"""

from __future__ import annotations

import logging

import trio
from attrs import define, field

from llmgw_core.agent.attempt import WANTED, Attempt, adopt, begin
from llmgw_core.agent.logs import read_log
from llmgw_core.agent.node import Node
from llmgw_core.agent.shard_files import Kept
from llmgw_core.model.launch import Order, RunShard, StopShard
from llmgw_core.model.shard import ShardStatus
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
                if attempt := self._attempts.get((replica, rank, generation)):
                    attempt.stop(in_flight_s)

    def _run(self, order: RunShard) -> None:
        launch = order.launch
        key = (launch.replica, order.rank, launch.generation)
        if key in self._attempts:
            self._attempts[key].want(WANTED[order.stage])
            return
        if launch.generation < self.node.files.highest.get(launch.replica, 0):
            _log.warning("order ignored", extra={"shard": launch.shard_id(order.rank), "reason": "an old generation"})
            return
        self._raise_highest(launch.replica, launch.generation)
        self._add(key, begin(self.node, order, self._tell))

    def _add(self, key: _Key, attempt: Attempt) -> None:
        self._attempts[key] = attempt
        self._waiting.append(attempt)
        self._begun.set()
        self._tell()

    def _raise_highest(self, replica: str, generation: int) -> None:
        self.node.files.highest[replica] = max(generation, self.node.files.highest.get(replica, 0))

    def statuses(self) -> tuple[ShardStatus, ...]:
        return tuple(self._attempts[key].status() for key in sorted(self._attempts))

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

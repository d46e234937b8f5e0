"""From a table to all workers, and what they have made of it.

Rules: a table is on disk before it counts, as far as the disk takes it; it is taken when every worker goes by it; what
lingers is every request at an attempt to which the table leads no more, also one that a worker begins by an older table
while this one is on its way to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import trio

from llmgw_core.gateway.board import Board
from llmgw_core.gateway.place import Places, assign_places, attempt_name
from llmgw_core.gateway.route_file import ROUTE_FILE, BadRouteFile, Routed, parse_routes, read_routes, write_routes
from llmgw_core.model.route import Lingering, RouteTable

LOOK_EVERY_S = 0.05
"""While something lingers, or a worker has not taken the last table."""
_log = logging.getLogger("llmgw.gateway")


class Routing:
    """`publish` hands a table to all workers; `state` None: nothing is kept on disk."""

    def __init__(self, board: Board, publish: Callable[[Routed], None], state: Path | None) -> None:
        self._board = board
        self._publish = publish
        self._file = state / ROUTE_FILE if state is not None else None
        self._routed: Routed | None = None
        self._unrouted: dict[str, int] = {}
        """Places of attempts to which the table leads no more."""
        self._news = trio.Event()

    def load(self, last: bytes = b"") -> None:
        """Go by what was on disk; or by `last`, which the workers have of an earlier life of this process."""
        try:
            routed = parse_routes(last) if last else read_routes(self._file) if self._file is not None else None
        except BadRouteFile as error:
            _log.error("the last routes are of no use", extra={"reason": str(error)})
            return
        if routed is not None:
            since = datetime.fromtimestamp(routed.table.version / 1000, UTC)
            _log.info("serving by the last routes", extra={"since": f"{since:%Y-%m-%d %H:%M:%SZ}"})
            self._hand_on(routed)

    async def take(self, table: RouteTable) -> None:
        """What the control plane says now."""
        before = self._routed.places if self._routed is not None else Places()
        routed = Routed(table, assign_places(before, table, self._may_linger()))
        if self._file is not None:
            try:
                await trio.to_thread.run_sync(write_routes, self._file, routed)
            except OSError as error:
                _log.error("routes not kept", extra={"reason": f"{self._file}: {error.strerror}"})
        self._hand_on(routed)

    def note_heard(self) -> None:
        """The control plane has said something."""
        self._board.note_heard(time.time())  # noqa: TID251 - whoever reads metrics compares it with such a clock

    def _hand_on(self, routed: Routed) -> None:
        named = _attempts(routed.table)
        self._unrouted = {name: place for name, place in routed.places.attempts.items() if name not in named}
        self._routed = routed
        self._publish(routed)
        self._news.set()
        self._news = trio.Event()

    def _may_linger(self) -> set[str]:
        """Names of attempts that have requests, or may get one before every worker goes by the next table."""
        if self._routed is None:
            return set()
        places, table = self._routed.places.attempts, self._routed.table
        if self.taken() != table.version:
            return set(places)
        return _attempts(table) | {name for name, place in places.items() if self._board.in_flight(place)}

    def taken(self) -> int:
        """The version by which every worker goes; 0 before there is one."""
        return min(self._board.versions())

    def lingering(self) -> tuple[Lingering, ...]:
        counts = {name: self._board.in_flight(place) for name, place in self._unrouted.items()}
        named = [(name.rpartition("@"), count) for name, count in counts.items() if count]
        return tuple(Lingering(replica, int(generation), count) for (replica, _, generation), count in named)

    async def next_taken(self, said: tuple[int, tuple[Lingering, ...]] | None) -> tuple[int, tuple[Lingering, ...]]:
        """What is taken and what lingers, as soon as it is another than was `said`."""
        while True:
            news, now = self._news, (self.taken(), self.lingering())
            if now != said and now[0]:
                return now
            is_settled = self._routed is None or (now[0] == self._routed.table.version and not now[1])
            with trio.move_on_after(inf if is_settled else LOOK_EVERY_S):
                await news.wait()


def _attempts(table: RouteTable) -> set[str]:
    return {attempt_name(target) for model in table.models for target in model.targets}

"""A model and its replicas, as a worker knows them now: how busy each is, and whether it takes connections.

Rules: a replica that refuses a connection, or loses a request on a fresh one before any answer, is out for a second,
doubling to ten; the first answer brings it back; when all are out they are tried anyway, and none is tried twice for
one request. Of the rest the one with the fewest requests in flight is taken, in turn where several have as few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from llmgw_core.gateway.board import Row, attempt_cell, replica_cell
from llmgw_core.model.route import Affinity, ModelRoute, Target

if TYPE_CHECKING:
    from llmgw_core.gateway.exchange import Exchange
    from llmgw_core.gateway.upstream import Upstream

OUT_S, LONGEST_OUT_S = 1.0, 10.0
YIELDS_ABOVE = 1.25
"""Of the mean of requests in flight: so far affinity holds (bounded loads: Mirrokni, Thorup, Zadimoghaddam 2018)."""
YIELDS_SPARE = 2
"""Requests more than that, so that it holds where there are few."""


class ServedReplica:
    """One attempt of a replica; `row` is this worker's, `others` those of its fellows."""

    __slots__ = ("_attempt", "_others", "_row", "cell", "failures", "head", "idle", "is_routed", "out_until", "target")

    def __init__(self, target: Target, attempt: int, replica: int, row: Row[int], others: Sequence[Row[int]]) -> None:
        self.target = target
        host = f"[{target.address}]" if ":" in target.address else target.address
        key = f"authorization: Bearer {target.key}\r\n" if target.key else ""
        self.head = f" HTTP/1.1\r\nhost: {host}:{target.port}\r\n{key}".encode()
        """How the head of a request to it goes on after its target."""
        self.cell = replica_cell(replica)
        """The first of its numbers on the board."""
        self.idle: deque[Upstream] = deque()
        self.failures = 0
        self.out_until = 0.0
        self.is_routed = True
        """Whether the table still leads here."""
        self._attempt = attempt_cell(attempt)
        self._row = row
        self._others = others

    @property
    def in_flight(self) -> int:
        """Of all workers."""
        count = self._row[self._attempt]
        for row in self._others:
            count += row[self._attempt]
        return count

    def begin(self) -> None:
        self._row[self._attempt] += 1

    def end(self) -> None:
        self._row[self._attempt] -= 1

    def note_failure(self, now: float) -> None:
        self.failures += 1
        self.out_until = now + min(OUT_S * 2 ** (self.failures - 1), LONGEST_OUT_S)

    def note_answer(self) -> None:
        self.failures = 0
        self.out_until = 0.0


class ServedModel:
    def __init__(self, route: ModelRoute, place: int) -> None:
        self.route = route
        self.place = place
        self.replicas: tuple[ServedReplica, ...] = ()
        self.waiting: set[Exchange] = set()
        """Requests that wait until a replica is ready."""
        self._turn = 0

    def choose(self, now: float, tried: Collection[ServedReplica], meeting: bytes) -> ServedReplica | None:
        """Where a request goes; `meeting`: what it shares with those that it should meet, empty for none."""
        fresh = [each for each in self.replicas if each not in tried] if tried else self.replicas
        good = [each for each in fresh if each.out_until <= now]
        candidates = good or fresh
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        loads = [each.in_flight for each in candidates]
        if meeting:
            liked = max(range(len(candidates)), key=lambda each: _liking(meeting, candidates[each]))
            if loads[liked] <= YIELDS_ABOVE * sum(loads) / len(loads) + YIELDS_SPARE:
                return candidates[liked]
        return candidates[self._least(loads)]

    def _least(self, loads: Sequence[int]) -> int:
        least = min(loads)
        self._turn += 1
        equals = [each for each, load in enumerate(loads) if load == least]
        return equals[self._turn % len(equals)]

    @property
    def affinity(self) -> Affinity:
        return self.route.affinity


def _liking(meeting: bytes, replica: ServedReplica) -> bytes:
    """Highest of all for one replica, and for the same one as long as it is there (rendezvous hashing)."""
    return blake2b(meeting, key=replica.target.replica.encode()[:64], digest_size=8).digest()

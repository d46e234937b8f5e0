"""The candidates of one offer that have room, the best first.

In: candidates, and what is taken meanwhile.  Out: the best so many of them.
Rules: replicas of one model apart, then the tightest fit, then the name. Choosing costs the logarithm of the number of
nodes: entries of a heap whose key is no longer the node's are passed over.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heapify, heappop, heappush

from attrs import define, field

from llmgw_core.model.launch import Offer
from llmgw_core.plan.candidate import Candidate, has_room
from llmgw_core.plan.room import Rooms

Build = tuple[str, str | None, str | None]
"""Fabric, engine version, help digest: the same for all nodes of a group, and nothing for single nodes."""

_Key = tuple[int, int, str]


@define
class Pool:
    offer: Offer
    candidates: dict[str, Candidate]
    fit: dict[str, _Key] = field(factory=dict)
    """Those that have room, each with its place in the order."""
    _heap: list[_Key] = field(factory=list)
    _seen: int = 0
    """How many of the changes are known here."""

    def catch_up(self, rooms: Rooms) -> None:
        """Judge again what has changed since."""
        if self._seen == len(rooms.changed):
            return
        for name in dict.fromkeys(rooms.changed[self._seen :]):
            if name in self.candidates:
                self._judge(name)
        self._seen = len(rooms.changed)

    def best(self, count: int, last: Container[str], never: Container[str]) -> list[str]:
        """Names of the best `count`, or of fewer when there are no more; those in `last` only for want of others."""
        good: list[str] = []
        poor: list[str] = []
        passed: dict[str, _Key] = {}
        while self._heap and len(good) < count:
            key = heappop(self._heap)
            name = key[2]
            if self.fit.get(name) != key or name in passed:
                continue
            passed[name] = key
            if name not in never:
                (poor if name in last else good).append(name)
        for key in passed.values():
            heappush(self._heap, key)
        return (good + poor)[:count]

    def _judge(self, name: str) -> None:
        candidate = self.candidates[name]
        if not has_room(candidate, self.offer):
            self.fit.pop(name, None)
            return
        key = self._key(candidate)
        if self.fit.get(name) != key:
            self.fit[name] = key
            heappush(self._heap, key)

    def _key(self, candidate: Candidate) -> _Key:
        room, profile = candidate.room, self.offer.profile
        # Who takes no GPU is no tighter fit anywhere: the node with the fewest shards is the better one.
        used = room.count_free(profile) if profile.gpus_per_node else room.shards
        return room.models.get(self.offer.model, 0), used, candidate.name

    def fill(self, seen: int) -> None:
        """Judge all of them; `seen` changes are known."""
        for name, candidate in self.candidates.items():
            if has_room(candidate, self.offer):
                self.fit[name] = self._key(candidate)
        self._heap = list(self.fit.values())
        heapify(self._heap)
        self._seen = seen


def pool_of(offer: Offer, candidates: dict[str, Candidate], rooms: Rooms) -> Pool:
    pool = Pool(offer, candidates)
    pool.fill(len(rooms.changed))
    return pool

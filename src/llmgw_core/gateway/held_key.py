"""The API keys by which a worker lets users in, and what each may do now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from attrs import frozen

from llmgw_core.gateway.answer import Refusal
from llmgw_core.gateway.board import COUNT, COUNT_BEFORE, IN_FLIGHT, MINUTE, Row, key_cell
from llmgw_core.gateway.limit import BUSY_S, MINUTE_S, wait_for_rate
from llmgw_core.gateway.place import Places
from llmgw_core.model.route import UserKey


@frozen
class HeldKey:
    id: str
    place: int
    cell: int
    """The first of its numbers on the board."""
    models: frozenset[str] | None = None
    """None: all."""
    expires_at: float | None = None
    requests_per_minute: int = 0
    concurrent: int = 0

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models


ANYBODY = HeldKey("", 0, key_cell(0))
"""Who comes in where no key is asked for."""


class HeldKeys:
    def __init__(self, row: Row[int], rows: Sequence[Row[int]], clock: Callable[[], float]) -> None:
        self._row = row
        self._rows = rows
        self._clock = clock
        self._keys: dict[bytes, HeldKey] = {}
        """By digest."""
        self._made_of: tuple[tuple[UserKey, ...], Mapping[str, int]] = ((), {})

    def take(self, keys: tuple[UserKey, ...], places: Places) -> None:
        if (keys, places.keys) != self._made_of:  # replicas change often, and keys seldom
            self._keys = {bytes.fromhex(key.digest): _hold(key, places.keys.get(key.id, 0)) for key in keys}
            self._made_of = keys, places.keys

    def find(self, said: bytes) -> HeldKey | None:
        key = self._keys.get(sha256(said).digest())
        if key is None or (key.expires_at is not None and key.expires_at <= self._clock()):
            return None
        return key

    def id_of(self, said: bytes) -> str:
        """Of a key that is not let in any more; empty where it is not known."""
        key = self._keys.get(sha256(said).digest())
        return key.id if key is not None else ""

    def refuse(self, said: bytes) -> Refusal:
        """Why whoever says this is not let in."""
        if not said:
            why = "an API key is needed: send it as `Authorization: Bearer KEY`"
        elif sha256(said).digest() in self._keys:
            why = "the API key has expired"
        else:
            why = "the API key is not known, is revoked, or has expired"
        return Refusal(401, why, "invalid_api_key")

    def begin(self, key: HeldKey) -> Refusal | None:
        """Count one request more as in flight, or say why it is too much now."""
        if key.concurrent:
            busy = sum(row[key.cell + IN_FLIGHT] for row in self._rows)
            if busy >= key.concurrent:
                return _too_many(f"{busy} requests of this key are in flight, of {key.concurrent} at most", BUSY_S)
        if key.requests_per_minute:
            wait = self._count(key)
            if wait:
                return _too_many(f"this key may send {key.requests_per_minute} requests a minute", wait)
        self._row[key.cell + IN_FLIGHT] += 1
        return None

    def _count(self, key: HeldKey) -> float:
        now = self._clock()
        minute = int(now // MINUTE_S)
        counts = [_counts(row, key.cell, minute) for row in self._rows]
        this, before = sum(each[0] for each in counts), sum(each[1] for each in counts)
        wait = wait_for_rate(now, this, before, key.requests_per_minute)
        if not wait:
            own, own_before = _counts(self._row, key.cell, minute)
            row, cell = self._row, key.cell
            row[cell + MINUTE], row[cell + COUNT], row[cell + COUNT_BEFORE] = minute, own + 1, own_before
        return wait


def _hold(key: UserKey, place: int) -> HeldKey:
    models = frozenset(key.models) if key.models else None
    return HeldKey(key.id, place, key_cell(place), models, key.expires_at, key.requests_per_minute, key.concurrent)


def _counts(row: Row[int], cell: int, minute: int) -> tuple[int, int]:
    """What a worker has counted in this minute, and in the one before."""
    last = row[cell + MINUTE]
    if last == minute:
        return row[cell + COUNT], row[cell + COUNT_BEFORE]
    return 0, row[cell + COUNT] if last == minute - 1 else 0


def _too_many(why: str, wait_s: float) -> Refusal:
    return Refusal(429, why, "rate_limit_exceeded", retry_after_s=wait_s)

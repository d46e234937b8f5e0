"""Counts that all workers of a gateway share: one row of numbers each, in memory that all of them see.

Each worker writes its own row and no other, so nothing is locked; whoever wants a sum reads all rows. A number is
64 bits and aligned, and is read as it was before or after a change.

    row      what
    ------   ----------------------------------------------------------------
    0        the version of the table by which the worker routes
    1 ...    ATTEMPTS: requests in flight at an attempt of a replica
    ...      KEYS: `KEY_CELLS` numbers of each API key: in flight, and its last two minutes
    ...      REPLICAS: `REPLICA_CELLS` numbers of each replica, for the metrics
    ...      OWN: answers that no replica gave, by status
    ...      USES: `USE_CELLS` numbers of each pair of key and model, in the order in which the worker met them

Which place belongs to whom is decided by one process (`place.py`), and said with each table. Place 0 of each part is
for all that find no place of their own, so that no part ever grows.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator

ATTEMPTS, KEYS, REPLICAS, MODELS, USES = 4096, 8192, 2048, 1024, 8192
OWN = 600
"""Statuses of HTTP are below."""

BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histograms, in seconds."""
CAUSES = (
    "refused",
    "connect_timeout",
    "lost_before_answer",
    "lost_in_answer",
    "answer_timeout",
    "stalled",
    "nonsense",
    "client_left",
    "stopped",
)
"""Why a request at a replica ended without its whole answer."""

KEY_CELLS = 4
IN_FLIGHT, MINUTE, COUNT, COUNT_BEFORE = range(KEY_CELLS)

STATUS_CELLS = 5
"""Answers 1xx to 5xx."""
HISTOGRAM_CELLS = len(BUCKETS_S) + 2
"""The buckets, the one without end, and the sum in microseconds."""
STATUS, CAUSE = 0, STATUS_CELLS
RETRIED = CAUSE + len(CAUSES)
FIRST = RETRIED + 1
TOTAL = FIRST + HISTOGRAM_CELLS
TOKENS_IN = TOTAL + HISTOGRAM_CELLS
TOKENS_OUT = TOKENS_IN + 1
REPLICA_CELLS = TOKENS_OUT + 1

USE_CELLS = 5
USE_REQUESTS, USE_TOKENS_IN, USE_TOKENS_OUT = 2, 3, 4

_ATTEMPTS = 1
_KEYS = _ATTEMPTS + ATTEMPTS
_REPLICAS = _KEYS + KEYS * KEY_CELLS
_OWN = _REPLICAS + REPLICAS * REPLICA_CELLS
_USES = _OWN + OWN
ROW = _USES + USES * USE_CELLS
_BYTES = 8

Row = memoryview
"""A worker's numbers."""


class Board:
    """The rows of all workers; pages that nobody wrote to take no memory."""

    def __init__(self, workers: int = 1) -> None:
        self._memory = mmap.mmap(-1, (workers * ROW + 1) * _BYTES)
        cells = memoryview(self._memory).cast("q")
        self._heard = cells[ROW * workers :]
        self.rows: tuple[Row[int], ...] = tuple(cells[ROW * each : ROW * (each + 1)] for each in range(workers))

    def note_heard(self, now: float) -> None:
        """The control plane has said something; by the one process that hears it."""
        self._heard[0] = int(now)

    @property
    def heard_at(self) -> int:
        """Seconds since 1970; 0: not in this gateway's life."""
        return self._heard[0]

    def others(self, worker: int) -> tuple[Row[int], ...]:
        return tuple(row for each, row in enumerate(self.rows) if each != worker)

    def versions(self) -> list[int]:
        """Of the table by which each worker routes; 0 before it has one."""
        return [row[0] for row in self.rows]

    def in_flight(self, attempt: int) -> int:
        return sum(row[attempt_cell(attempt)] for row in self.rows)

    def replica(self, replica: int) -> list[int]:
        """The sums of a replica's numbers."""
        begin = replica_cell(replica)
        return [sum(column) for column in zip(*(row[begin : begin + REPLICA_CELLS] for row in self.rows), strict=True)]

    def own(self) -> dict[int, int]:
        """Answers that no replica gave, by status."""
        counts = {status: sum(row[own_cell(status)] for row in self.rows) for status in range(OWN)}
        return {status: count for status, count in counts.items() if count}

    def uses(self) -> dict[tuple[int, int], list[int]]:
        """By the places of key and model: requests, tokens in, tokens out."""
        sums: dict[tuple[int, int], list[int]] = {}
        for row in self.rows:
            for key, model, *counts in _uses_of(row):
                before = sums.get((key, model), [0, 0, 0])
                sums[key, model] = [one + other for one, other in zip(before, counts, strict=True)]
        return sums

    def forget_worker(self, worker: int) -> None:
        """A worker has died: nothing of it is in flight, and it routes by no table."""
        row = self.rows[worker]
        row[0] = 0
        for attempt in range(ATTEMPTS):
            row[attempt_cell(attempt)] = 0
        for key in range(KEYS):
            row[key_cell(key)] = 0


def attempt_cell(place: int) -> int:
    return _ATTEMPTS + place


def key_cell(place: int) -> int:
    """The first of a key's."""
    return _KEYS + place * KEY_CELLS


def replica_cell(place: int) -> int:
    """The first of a replica's."""
    return _REPLICAS + place * REPLICA_CELLS


def own_cell(status: int) -> int:
    return _OWN + status


def observe(row: Row[int], begin: int, seconds: float) -> None:
    """Into the histogram that begins there."""
    row[begin + bisect_left(BUCKETS_S, seconds)] += 1
    row[begin + HISTOGRAM_CELLS - 1] += int(seconds * 1e6)


class Uses:
    """Where a worker counts a pair of key and model; the first for all that find no room."""

    def __init__(self, row: Row[int]) -> None:
        self._row = row
        self._cells = {(key, model): _USES + each * USE_CELLS for each, (key, model, *_) in enumerate(_uses_of(row))}

    def cell(self, key: int, model: int) -> int:
        """The first of the pair's numbers: key, model, requests, tokens in, tokens out; places are one more there."""
        found = self._cells.get((key, model))
        if found is not None:
            return found
        if len(self._cells) >= USES:
            return _USES
        made = self._cells[key, model] = _USES + len(self._cells) * USE_CELLS
        self._row[made], self._row[made + 1] = key + 1, model + 1
        return made


def _uses_of(row: Row[int]) -> Iterator[list[int]]:
    for begin in range(_USES, ROW, USE_CELLS):
        key, model, *counts = row[begin : begin + USE_CELLS]
        if not key:
            return
        yield [key - 1, model - 1, *counts]

"""Questions to the store, and their answers as values."""

from __future__ import annotations

import sqlite3

from attrs import frozen

from llmgw_core.store.database import Database

_LAST_EVENTS = 10_000
"""The most that one question gives."""


@frozen
class StoredNode:
    name: str
    serial: str
    key_fingerprint: str
    until: float
    address: str
    instance: str
    report_number: int
    facts: str | None
    """JSON of the last report."""
    first_seen: float
    last_seen: float


@frozen
class Revocation:
    serial: str
    name: str
    at: float
    by: str
    reason: str


@frozen
class Event:
    id: int
    at: float
    node: str
    kind: str
    reason: str


def read_nodes(database: Database) -> tuple[StoredNode, ...]:
    """All nodes by name."""
    return tuple(StoredNode(**dict(row)) for row in database.read("SELECT * FROM node ORDER BY name"))


def read_revocations(database: Database) -> tuple[Revocation, ...]:
    """All revoked serials, the latest last."""
    return tuple(Revocation(**dict(row)) for row in database.read("SELECT * FROM revocation ORDER BY at, serial"))


def read_serials(database: Database, name: str) -> tuple[str, ...]:
    """Every certificate that was ever shown under this name."""
    rows = database.read("SELECT serial FROM certificate WHERE name = ? ORDER BY first_seen, serial", name)
    return tuple(row["serial"] for row in rows)


def read_events(database: Database, *, after: int = 0, node: str = "", limit: int = 100) -> tuple[Event, ...]:
    """The last `limit` events with an id above `after`, oldest first; of one node, if it is named."""
    rows: list[sqlite3.Row] = database.read(
        "SELECT * FROM event WHERE id > ? AND (? = '' OR node = ?) ORDER BY id DESC LIMIT ?",
        after,
        node,
        node,
        min(limit, _LAST_EVENTS),
    )
    return tuple(Event(**dict(row)) for row in reversed(rows))

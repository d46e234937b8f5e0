"""Questions to the store, and their answers as values."""

from __future__ import annotations

import sqlite3

from attrs import frozen

from llmgw_core.model.drain import Drain, Rollout
from llmgw_core.store.database import Database

_LAST_EVENTS = 10_000
"""The most that one question gives."""
_EVENTS = (
    "SELECT id, at, substr(node, 1, 100) AS node, substr(kind, 1, 100) AS kind, substr(reason, 1, 500) AS reason"
    " FROM event WHERE id > ? AND (? = '' OR node = ?) "
)


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


@frozen
class Shown:
    """A certificate that was shown here."""

    serial: str
    role: str


@frozen
class AppliedCatalog:
    at: float
    by: str
    name: str
    text: str


def read_catalog(database: Database) -> AppliedCatalog | None:
    """The one that counts."""
    rows = database.read("SELECT at, by, name, text FROM catalog ORDER BY id DESC LIMIT 1")
    return AppliedCatalog(**dict(rows[0])) if rows else None


def read_scales(database: Database) -> dict[str, int]:
    """By model, how many replicas were set by hand since the last apply."""
    return {row["model"]: row["replicas"] for row in database.read("SELECT model, replicas FROM scale")}


def read_replicas(database: Database) -> dict[str, str]:
    """By id, JSON of each replica's record."""
    return {row["id"]: row["record"] for row in database.read("SELECT id, record FROM replica")}


@frozen
class Served:
    """How a model's replicas ran before its last change."""

    offers: str
    """JSON."""
    rolled_back: bool


def read_drains(database: Database) -> dict[str, Drain]:
    """By node."""
    rows = database.read("SELECT node, by, at, until, stop_first, max_parallel FROM drain")
    return {row["node"]: Drain(**{**dict(row), "stop_first": bool(row["stop_first"])}) for row in rows}


def read_rollouts(database: Database) -> dict[str, Rollout]:
    """By model."""
    rows = database.read("SELECT model, at, stop_first FROM rollout")
    return {row["model"]: Rollout(row["model"], row["at"], bool(row["stop_first"])) for row in rows}


def read_served(database: Database) -> dict[str, Served]:
    """By model."""
    rows = database.read("SELECT model, offers, rolled_back FROM served")
    return {row["model"]: Served(row["offers"], bool(row["rolled_back"])) for row in rows}


def read_created(database: Database) -> dict[str, float]:
    """By model that was ever applied, when it first was."""
    return {row["name"]: row["created"] for row in database.read("SELECT name, created FROM model")}


def read_gateways(database: Database) -> tuple[tuple[str, str], ...]:
    """Name and instance of those that were there when this was last written."""
    rows = database.read("SELECT name, instance FROM gateway ORDER BY name, instance")
    return tuple((row["name"], row["instance"]) for row in rows)


@frozen
class StoredKey:
    """An API key of a user, as it is kept."""

    id: str
    name: str
    digest: str
    created: float
    by: str
    expires: float | None
    models: str
    """JSON."""
    rpm: int
    concurrent: int
    revoked: float | None


def read_keys(database: Database) -> tuple[StoredKey, ...]:
    """All that were ever made, the oldest first."""
    return tuple(StoredKey(**dict(row)) for row in database.read("SELECT * FROM user_key ORDER BY created, id"))


def read_nodes(database: Database) -> tuple[StoredNode, ...]:
    """All nodes by name."""
    return tuple(StoredNode(**dict(row)) for row in database.read("SELECT * FROM node ORDER BY name"))


def read_revocations(database: Database) -> tuple[Revocation, ...]:
    """All revoked serials, the latest last."""
    return tuple(Revocation(**dict(row)) for row in database.read("SELECT * FROM revocation ORDER BY at, serial"))


def read_certificates(database: Database, name: str) -> tuple[Shown, ...]:
    """Every certificate that was ever shown under this name."""
    rows = database.read("SELECT serial, role FROM certificate WHERE name = ? ORDER BY first_seen, serial", name)
    return tuple(Shown(**dict(row)) for row in rows)


def read_roles(database: Database, name: str) -> dict[str, str]:
    """By serial, the role of every certificate that was shown under this name."""
    return {each.serial: each.role for each in read_certificates(database, name)}


def read_events(database: Database, *, after: int = 0, node: str = "", limit: int = 100) -> tuple[Event, ...]:
    """Oldest first, of one node if it is named: the first `limit` events with an id above `after`, or the last ones."""
    rows: list[sqlite3.Row] = database.read(
        _EVENTS + ("ORDER BY id LIMIT ?" if after else "ORDER BY id DESC LIMIT ?"),
        after,
        node,
        node,
        min(limit, _LAST_EVENTS),
    )
    return tuple(Event(**dict(row)) for row in (rows if after else reversed(rows)))

"""How each change is written: SQL whose parameters are the change's fields, in their order."""

from __future__ import annotations

from collections.abc import Mapping

from llmgw_core.store.change import (
    CatalogApplied,
    CertificateSeen,
    Change,
    DrainAsked,
    DrainEnded,
    EventHappened,
    GatewayConnected,
    GatewayForgotten,
    KeyCreated,
    KeyRevoked,
    ModelCreated,
    ModelScaled,
    NodeConnected,
    NodeLastSeen,
    NodeRemoved,
    NodeReported,
    OffersServed,
    ReplicaChanged,
    RolledBack,
    RolloutAsked,
    SerialRevoked,
    SerialUnrevoked,
)

KEPT_EVENTS = 100_000
"""The oldest beyond them go, so that a fleet that flaps for years fills no disk: some 20 MB. They go a few with each
new one: all that an earlier release left would be a transaction that a full disk does not take."""
_CERTIFICATE = (
    "INSERT OR IGNORE INTO certificate (serial, role, name, until, first_seen)"
    " VALUES (:serial, :role, :name, :until, :now)"
)

STATEMENTS: Mapping[type[Change], tuple[str, ...]] = {
    NodeConnected: (
        _CERTIFICATE,
        "INSERT INTO node"
        " (name, serial, key_fingerprint, until, address, instance, report_number, first_seen, last_seen)"
        " VALUES (:name, :serial, :key_fingerprint, :until, :address, :instance, 0, :now, :now)"
        " ON CONFLICT (name) DO UPDATE SET"
        " serial = :serial, key_fingerprint = :key_fingerprint, until = :until, address = :address,"
        " report_number = CASE WHEN instance = :instance THEN report_number ELSE 0 END,"
        " instance = :instance, last_seen = :now",
    ),
    CertificateSeen: (_CERTIFICATE,),
    NodeReported: (
        "UPDATE node SET facts = :facts, report_number = :number, last_seen = :now"
        " WHERE name = :name AND instance = :instance AND report_number < :number",
    ),
    NodeLastSeen: ("UPDATE node SET last_seen = :now WHERE name = :name",),
    NodeRemoved: ("DELETE FROM node WHERE name = :name", "DELETE FROM drain WHERE node = :name"),
    SerialRevoked: (
        "INSERT OR IGNORE INTO revocation (serial, name, at, by, reason) VALUES (:serial, :name, :now, :by, :reason)",
    ),
    SerialUnrevoked: ("DELETE FROM revocation WHERE serial = :serial",),
    CatalogApplied: (
        "DELETE FROM scale",
        "DELETE FROM rollout",
        "UPDATE served SET rolled_back = 0",
        "INSERT INTO catalog (at, by, name, text) VALUES (:now, :by, :name, :text)",
    ),
    ModelScaled: ("INSERT OR REPLACE INTO scale (model, replicas) VALUES (:model, :replicas)",),
    ReplicaChanged: ("INSERT OR REPLACE INTO replica (id, record) VALUES (:id, :record)",),
    DrainAsked: (
        "INSERT OR REPLACE INTO drain (node, by, at, until, stop_first, max_parallel)"
        " VALUES (:node, :by, :now, :until, :stop_first, :max_parallel)",
    ),
    DrainEnded: ("DELETE FROM drain WHERE node = :node",),
    RolloutAsked: ("INSERT OR REPLACE INTO rollout (model, at, stop_first) VALUES (:model, :now, :stop_first)",),
    OffersServed: ("INSERT OR REPLACE INTO served (model, offers, rolled_back) VALUES (:model, :offers, 0)",),
    RolledBack: ("UPDATE served SET rolled_back = 1 WHERE model = :model",),
    ModelCreated: ("INSERT OR IGNORE INTO model (name, created) VALUES (:name, :now)",),
    GatewayConnected: ("INSERT OR REPLACE INTO gateway (name, instance, since) VALUES (:name, :instance, :now)",),
    GatewayForgotten: ("DELETE FROM gateway WHERE name = :name AND instance = :instance",),
    KeyCreated: (
        "INSERT INTO user_key (id, name, digest, created, by, expires, models, rpm, concurrent)"
        " VALUES (:id, :name, :digest, :now, :by, :expires, :models, :rpm, :concurrent)",
    ),
    KeyRevoked: ("UPDATE user_key SET revoked = :now WHERE id = :id AND revoked IS NULL",),
    EventHappened: (
        "INSERT INTO event (at, node, kind, reason) VALUES (:now, :node, :kind, :reason)",
        f"DELETE FROM event WHERE id IN (SELECT id FROM event WHERE id <= last_insert_rowid() - {KEPT_EVENTS}"  # noqa: S608
        " ORDER BY id LIMIT 10)",
    ),
}

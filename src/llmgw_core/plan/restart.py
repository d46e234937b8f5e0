"""What is remembered of attempts that failed, and when and where the next one may be.

In: a record, and what became of its attempt.  Out: the record after it.  Pure.
Rules: 10 s doubling to 5 min; a replica that was ready for 5 min has a clean slate; a command that an engine refused
is not tried again on that node before the engine or the command changes; a port that was taken and a node that was
lost cost no waiting at first, since the next attempt goes elsewhere in any case.
"""

from __future__ import annotations

from collections.abc import Container

from attrs import evolve

from llmgw_core.engine.health import FailureKind
from llmgw_core.model.deployment import Assignment, ReplicaFailure, ReplicaRecord
from llmgw_core.model.launch import Offer

NODE_LOST = "node lost"
"""The kind of a failure that is nobody's but the node's."""
FIRST_S = 10.0
MOST_S = 300.0
STABLE_S = 300.0
"""Ready for so long, a replica's earlier failures count no more."""
REPEATED = 2
"""So many failures on one node put it last."""
FREE = 2
"""So many failures cost no waiting, where the next attempt goes to another port or node in any case."""

_ELSEWHERE = (FailureKind.PORT_IN_USE.value, NODE_LOST)


def delay_s(failures: int, kind: str = "") -> float:
    """To wait after the `failures`-th failure in a row, from 1."""
    if kind in _ELSEWHERE:
        return 0.0 if failures <= FREE else FIRST_S
    return min(MOST_S, FIRST_S * 2.0 ** min(failures - 1, 10))


def has_failed(record: ReplicaRecord) -> bool:
    """Whether the attempt that it has, or had last, ended by a failure."""
    if record.assignment is not None:
        return record.assignment.failed
    return record.failures > 0 and record.last_failure is not None


def is_stained(record: ReplicaRecord) -> bool:
    return bool(record.failures or record.failed_on or record.first_failure or record.not_before)


def clean(record: ReplicaRecord) -> ReplicaRecord:
    """With nothing counted against it; the last failure stays for people to read."""
    return evolve(record, failures=0, not_before=0.0, failed_on={}, first_failure=None)


def stable_at(assignment: Assignment) -> float | None:
    """When its replica has a clean slate; `None` while it was never ready."""
    return None if assignment.ready_at is None else assignment.ready_at + STABLE_S


def clean_if_stable(record: ReplicaRecord, assignment: Assignment, now: float) -> ReplicaRecord:
    """Its attempt has been ready for so long that what failed before counts no more."""
    stable = stable_at(assignment)
    return clean(record) if stable is not None and stable <= now and is_stained(record) else record


def fail(record: ReplicaRecord, failure: ReplicaFailure, help_digest: str | None) -> ReplicaRecord:
    """The attempt has failed, and its shards are to go: the first to say so decides why."""
    assert record.assignment is not None  # noqa: S101 - an attempt is what fails
    assignment = record.assignment
    record = note_refusal(record, failure, assignment.launch.offer, help_digest)
    first = record.first_failure
    if first is None or first.generation == failure.generation:
        first = failure
    return evolve(
        record,
        assignment=evolve(assignment, stopping=failure.reason, failed=True),
        first_failure=first,
        last_failure=failure,
    )


def note_refusal(
    record: ReplicaRecord, failure: ReplicaFailure, offer: Offer, help_digest: str | None
) -> ReplicaRecord:
    """Where an engine refused the command, it is not given it again."""
    if failure.kind != FailureKind.BAD_ARGUMENTS.value or not failure.node:
        return record
    return evolve(record, refused_by={**record.refused_by, refusal_mark(failure.node, offer): help_digest or ""})


def drop(record: ReplicaRecord, now: float) -> ReplicaRecord:
    """Nothing of its attempt is left."""
    dropped = evolve(record, assignment=None, last_ports=ports_of(record.assignment))
    failure = record.last_failure
    return dropped if failure is None or not has_failed(record) else count(dropped, failure, now)


def count(record: ReplicaRecord, failure: ReplicaFailure, now: float) -> ReplicaRecord:
    """One more attempt in a row has failed, and nothing of it is left."""
    failures = record.failures + 1
    failed_on = dict(record.failed_on)
    if failure.node:
        failed_on[failure.node] = failed_on.get(failure.node, 0) + 1
    return evolve(
        record,
        failures=failures,
        not_before=now + delay_s(failures, failure.kind),
        failed_on=failed_on,
        first_failure=record.first_failure or failure,
        last_failure=failure,
    )


def in_the_past(record: ReplicaRecord, now: float) -> ReplicaRecord:
    """Itself; after the clock was set back, what was noted is no later than now, and nobody waits for the old time."""
    at_most = now + MOST_S
    if record.not_before > at_most:
        record = evolve(record, not_before=at_most)
    move = record.move
    if move is not None and (_is_ahead(move.replacement, now) or (move.steady_since or 0.0) > now):
        steady = None if move.steady_since is None else min(move.steady_since, now)
        record = evolve(record, move=evolve(move, replacement=_not_ahead(move.replacement, now), steady_since=steady))
    if _is_ahead(record.assignment, now):
        record = evolve(record, assignment=_not_ahead(record.assignment, now))
    return record


def _is_ahead(assignment: Assignment | None, now: float) -> bool:
    if assignment is None:
        return False
    return max(assignment.placed_at, assignment.ready_at or 0.0, assignment.held_since or 0.0) > now


def _not_ahead(assignment: Assignment | None, now: float) -> Assignment | None:
    if assignment is None:
        return None
    ready_at = None if assignment.ready_at is None else min(assignment.ready_at, now)
    held_since = None if assignment.held_since is None else min(assignment.held_since, now)
    placed_at = min(assignment.placed_at, now)
    return evolve(assignment, placed_at=placed_at, ready_at=ready_at, held_since=held_since)


def ports_of(assignment: Assignment | None) -> tuple[int, ...]:
    if assignment is None:
        return ()
    launch = assignment.launch
    ports = {place.port for place in launch.places}
    return tuple(sorted(ports | ({launch.rendezvous_port} if launch.rendezvous_port is not None else set())))


def after_change(record: ReplicaRecord, offers: Container[str]) -> ReplicaRecord:
    """What failed under an offer that is made no more says nothing about the offers of today."""
    failure = record.last_failure
    if failure is None or not failure.offer or failure.offer in offers or not is_stained(record):
        return record
    kept = {mark: digest for mark, digest in record.refused_by.items() if mark.rpartition(" ")[2] in offers}
    return evolve(clean(record), refused_by=kept)


def refusal_mark(node: str, offer: Offer) -> str:
    return f"{node} {offer.key}"

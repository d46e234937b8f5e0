"""How one replica goes on: launched, ready, failed, stopped, gone.

In: its record, what is seen of its attempt, what is wanted of it.  Out: the record after it, and what happened.  Pure.
Rules: a planned stop is no failure; what fails is stopped as a whole; it is dropped when nothing of it is left, and
only then is the failure counted. Doing the same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from llmgw_core.engine.health import FailureKind
from llmgw_core.model.deployment import Assignment, ReplicaFailure, ReplicaRecord
from llmgw_core.plan.attempt import is_ready, may_launch
from llmgw_core.plan.cause import GONE, find_cause, find_lateness
from llmgw_core.plan.parting import NO_GATEWAYS, Gateways
from llmgw_core.plan.restart import clean_if_stable, drop, fail, has_failed
from llmgw_core.plan.sighting import Sighting
from llmgw_core.plan.world import Happening


@frozen
class Terms:
    """By what one replica is judged."""

    now: float
    deadline_s: float
    unwanted: str = ""
    """Why it is to go; empty: it is to run."""
    superseded: int = 0
    """A generation above its own that a node reports; 0: there is none."""
    called_off: str = ""
    """Why its move is not to go on; empty: it is."""
    soak_s: float = 0.0
    """How long a replacement must have been ready."""
    replacement_deadline_s: float = 0.0
    replacement_outdated: bool = False
    """Whether its replacement is not how it is to run either."""
    gateways: Gateways = NO_GATEWAYS


@frozen
class Step:
    record: ReplicaRecord
    happenings: tuple[Happening, ...] = ()


def advance(record: ReplicaRecord, seen: Sequence[Sighting], terms: Terms) -> Step:
    """One replica, one pass. `seen` is empty without an assignment."""
    happenings: list[Happening] = []
    if record.assignment is not None and not record.assignment.stopping:
        step = _go_on(record, record.assignment, seen, terms)
        record = step.record
        happenings += step.happenings
    if record.assignment is not None and record.assignment.stopping:
        record = _find_better_cause(record, record.assignment, seen, terms)
        if record.assignment is not None and record.assignment.held_since is not None:
            record = evolve(record, assignment=hold_no_failure(record.assignment, seen, terms))
        if all(each.gone for each in seen):
            happenings += _told_stopped(record)
            record = drop(record, terms.now)
    return Step(record, tuple(happenings))


def hold_no_failure(assignment: Assignment, seen: Sequence[Sighting], terms: Terms) -> Assignment:
    """What is held back for its requests, and has failed, has none any more."""
    if assignment.held_since is None or find_cause(assignment, seen, terms.now) is None:
        return assignment
    return evolve(assignment, held_since=None)


def let_go(record: ReplicaRecord, gateways: Gateways) -> ReplicaRecord:
    """What of it was held back for the gateways' requests stops as soon as there are none."""
    if record.assignment is not None and record.assignment.held_since is not None:
        record = evolve(record, assignment=gateways.let_go(record.assignment))
    move = record.move
    if move is not None and move.replacement is not None and move.replacement.held_since is not None:
        record = evolve(record, move=evolve(move, replacement=gateways.let_go(move.replacement)))
    return record


def retired_if_over(record: ReplicaRecord, unwanted: str) -> ReplicaRecord:
    """Nothing of it is left, and nobody wants it."""
    over = unwanted and record.assignment is None and record.move is None
    return evolve(record, retired=True) if over and not record.retired else record


def _go_on(record: ReplicaRecord, assignment: Assignment, seen: Sequence[Sighting], terms: Terms) -> Step:
    if terms.unwanted:
        return _stop(record, assignment, terms.unwanted, terms)
    if terms.superseded:
        # Kept: when all shards have stopped, nobody may report it any more, and the next one must be above it.
        record = evolve(record, generation=terms.superseded)
        return _stop(record, assignment, tell_superseded(terms.superseded), terms)
    record = clean_if_stable(record, assignment, terms.now)
    failure = find_cause(assignment, seen, terms.now)
    if failure is None and not is_ready(seen):
        failure = find_lateness(assignment, seen, terms.now, terms.deadline_s)
    if failure is not None:
        told = f"{record.id}, generation {failure.generation}, rank {failure.rank}: {failure.kind}: {failure.reason}"
        failed = fail(record, failure, digest_of(seen, failure, assignment))
        return Step(failed, (Happening("replica failed", failure.node, told),))
    return _rise(record, assignment, seen, terms)


def tell_superseded(generation: int) -> str:
    return f"a node reports its generation {generation}, which is newer"


def _rise(record: ReplicaRecord, assignment: Assignment, seen: Sequence[Sighting], terms: Terms) -> Step:
    if not assignment.launched and may_launch(seen):
        assignment = evolve(assignment, launched=True)
        record = evolve(record, assignment=assignment)
    if assignment.ready_at is not None or not is_ready(seen):
        return Step(record)
    took = terms.now - assignment.placed_at
    told = f"{record.id}, generation {record.generation}: ready {took:.1f} s after it was placed"
    ready = evolve(record, assignment=evolve(assignment, ready_at=terms.now))
    return Step(ready, (Happening("replica ready", seen[0].place.node, told),))


def _stop(record: ReplicaRecord, assignment: Assignment, why: str, terms: Terms) -> Step:
    stopping = evolve(record, assignment=terms.gateways.depart(assignment, why))
    return Step(stopping, (Happening("replica stopping", "", f"{record.id}: {why}"),))


def _told_stopped(record: ReplicaRecord) -> list[Happening]:
    if has_failed(record) or (record.move is not None and record.move.replacement is not None):
        return []
    return [Happening("replica stopped", "", f"{record.id}: nothing of it is left")]


def _find_better_cause(
    record: ReplicaRecord, assignment: Assignment, seen: Sequence[Sighting], terms: Terms
) -> ReplicaRecord:
    """The shard that went first may be the last to say so."""
    known = record.last_failure
    if known is None or not has_failed(record) or known.kind != FailureKind.PEER_LOST.value:
        return record
    better = find_cause(assignment, seen, terms.now)
    if better is None or better.kind in (known.kind, GONE):  # they are gone because they are stopped
        return record
    return fail(record, better, digest_of(seen, better, assignment))


def digest_of(seen: Sequence[Sighting], failure: ReplicaFailure, assignment: Assignment) -> str | None:
    """Of the engine on the node that failed, as the shard says or else as the node does."""
    sighting = seen[failure.rank]
    if sighting.status is not None and sighting.status.help_digest:
        return sighting.status.help_digest
    facts = sighting.node.facts if sighting.node is not None else None
    engine = assignment.launch.offer.profile.engine
    return next((each.help_digest for each in facts.engines if each.engine == engine), None) if facts else None

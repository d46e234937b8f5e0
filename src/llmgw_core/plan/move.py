"""How one replica's move goes on: its replacement comes up, holds, takes over, and only then the original goes.

In: a record with a move, what is seen of both attempts, what is wanted.  Out: the record after it, and what happened.
Pure.
Rules: an original that runs is stopped only after its replacement is ready and has stayed so for the soak; a
replacement that fails is cleaned up and costs the original nothing; an original that fails is followed by its
replacement, whatever it is at; a move that nobody wants any more is called off as long as the original was not told to
stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from llmgw_core.model.deployment import Assignment, Move, MoveKind, ReplicaFailure, ReplicaRecord
from llmgw_core.plan.attempt import is_ready, may_launch
from llmgw_core.plan.cause import find_cause, find_lateness
from llmgw_core.plan.progress import Step, Terms, advance
from llmgw_core.plan.sighting import Sighting
from llmgw_core.plan.world import Happening

TRIES = {MoveKind.DRAIN: 2, MoveKind.CHANGE: 1}
"""Replacements that may fail: of a drain's one more is tried elsewhere; a change stops at the first."""


def is_exhausted(move: Move) -> bool:
    """Whether no other replacement is tried."""
    return move.tries >= TRIES[move.kind]


def is_under_way(record: ReplicaRecord) -> bool:
    """Whether something of its move runs or is on its way."""
    return record.move is not None and (record.move.replacement is not None or record.move.stop_first)


def advance_move(record: ReplicaRecord, seen: Sequence[Sighting], seen_new: Sequence[Sighting], terms: Terms) -> Step:
    """One replica that moves, one pass. `seen_new`: of its replacement's shards, empty where there is none."""
    step = advance(record, seen, terms)
    record, happenings = step.record, list(step.happenings)
    if record.move is not None and record.move.replacement is not None:
        step = _follow(record, record.move, record.move.replacement, seen_new, terms)
        record = step.record
        happenings += step.happenings
    step = _conclude(record, terms)
    return Step(step.record, (*happenings, *step.happenings))


def _follow(record: ReplicaRecord, move: Move, new: Assignment, seen: Sequence[Sighting], terms: Terms) -> Step:
    if new.stopping:
        gone = all(each.gone for each in seen)
        return Step(evolve(record, move=evolve(move, replacement=None, steady_since=None))) if gone else Step(record)
    called_off = terms.unwanted or ("" if _is_committed(record) else terms.called_off)
    if called_off:
        return _take_back(record, move, new, called_off)
    failure = find_cause(new, seen, terms.now)
    if failure is None and not is_ready(seen):
        failure = find_lateness(new, seen, terms.now, terms.replacement_deadline_s)
    if failure is not None:
        return _fail(record, move, new, failure)
    return _rise(record, move, new, seen, terms)


def _is_committed(record: ReplicaRecord) -> bool:
    """Whether the original goes in any case."""
    return record.assignment is None or bool(record.assignment.stopping)


def _take_back(record: ReplicaRecord, move: Move, new: Assignment, why: str) -> Step:
    moved = evolve(move, replacement=evolve(new, stopping=why), steady_since=None)
    return Step(evolve(record, move=moved), (Happening("replacement called off", "", f"{record.id}: {why}"),))


def _fail(record: ReplicaRecord, move: Move, new: Assignment, failure: ReplicaFailure) -> Step:
    stopped = evolve(new, stopping=failure.reason, failed=True)
    failed_on = (*move.failed_on, failure.node) if failure.node else move.failed_on
    moved = evolve(
        move, replacement=stopped, steady_since=None, tries=move.tries + 1, failed_on=failed_on, failure=failure
    )
    told = f"{record.id}, generation {failure.generation}, rank {failure.rank}: {failure.kind}: {failure.reason}"
    return Step(evolve(record, move=moved), (Happening("replacement failed", failure.node, told),))


def _rise(record: ReplicaRecord, move: Move, new: Assignment, seen: Sequence[Sighting], terms: Terms) -> Step:
    happenings = []
    if not new.launched and may_launch(seen):
        new = evolve(new, launched=True)
    if new.ready_at is None and is_ready(seen):
        new = evolve(new, ready_at=terms.now)
        took = f"ready {terms.now - new.placed_at:.1f} s after it was placed"
        told = f"{record.id}, generation {new.launch.generation}: {took}"
        happenings.append(Happening("replacement ready", seen[0].place.node, told))
    since = (terms.now if move.steady_since is None else move.steady_since) if is_ready(seen) else None
    record = evolve(record, move=evolve(move, replacement=new, steady_since=since))
    return Step(_release(record, terms), tuple(happenings))


def _release(record: ReplicaRecord, terms: Terms) -> ReplicaRecord:
    """Let the original go, once its replacement has held."""
    move, original = record.move, record.assignment
    if move is None or move.steady_since is None or original is None or original.stopping:
        return record
    if terms.now < move.steady_since + terms.soak_s:
        return record
    return evolve(record, assignment=evolve(original, stopping=f"replaced, since {move.why}"))


def _conclude(record: ReplicaRecord, terms: Terms) -> Step:
    """The replacement takes over, or the move is over without one."""
    move = record.move
    if move is None:
        return Step(record)
    new = move.replacement
    if new is not None and not new.stopping and record.assignment is None:
        where = ", ".join(place.node for place in new.launch.places)
        told = f"{record.id}, generation {new.launch.generation}: on {where}, since {move.why}"
        return Step(evolve(record, assignment=new, move=None), (Happening("replica moved", "", told),))
    if new is not None:
        return Step(record)
    if move.stop_first:
        again = record.assignment
        served = again is not None and not again.stopping and again.ready_at is not None
        return Step(evolve(record, move=None)) if served or terms.unwanted else Step(record)
    over = bool(terms.called_off or terms.unwanted or record.assignment is None)
    return Step(evolve(record, move=None)) if over else Step(record)

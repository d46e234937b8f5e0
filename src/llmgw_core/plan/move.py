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
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.progress import Step, Terms, advance, digest_of, hold_no_failure, let_go, tell_superseded
from llmgw_core.plan.restart import clean_if_stable, count, note_refusal
from llmgw_core.plan.rollout import CHANGED
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


def nodes_of(assignment: Assignment) -> tuple[str, ...]:
    """By rank."""
    return tuple(place.node for place in assignment.launch.places)


def tell_replacement(move: Move, new: Assignment) -> str:
    """`its replacement on gpu-03 starts`."""
    where = " and ".join(nodes_of(new))
    if new.stopping:
        return f"its replacement on {where} is cleaned up: {new.stopping}"
    if move.steady_since is not None:
        return f"its replacement on {where} is ready and must hold"
    return f"its replacement on {where} {'starts' if new.ready_at is None else 'is not ready any more'}"


def stops_first(record: ReplicaRecord) -> bool:
    return record.move is not None and record.move.stop_first


def advance_move(record: ReplicaRecord, seen: Sequence[Sighting], seen_new: Sequence[Sighting], terms: Terms) -> Step:
    """One replica that moves, one pass. `seen_new`: of its replacement's shards, empty where there is none."""
    step = advance(record, seen, terms)
    record, happenings = step.record, list(step.happenings)
    if record.move is not None and record.move.replacement is not None:
        step = _follow(record, record.move, record.move.replacement, seen_new, terms)
        record = step.record
        happenings += step.happenings
    step = _conclude(let_go(record, terms.gateways), terms)
    return Step(step.record, (*happenings, *step.happenings))


def _follow(record: ReplicaRecord, move: Move, new: Assignment, seen: Sequence[Sighting], terms: Terms) -> Step:
    step = Step(record) if new.stopping else _go_on(record, move, new, seen, terms)
    followed = step.record.move
    if followed is None or followed.replacement is None or not followed.replacement.stopping:
        return step
    step = evolve(step, record=_hold_no_failure(step.record, followed, followed.replacement, seen, terms))
    gone = all(each.gone for each in seen)
    return evolve(step, record=_clear(step.record, followed, followed.replacement, terms.now)) if gone else step


def _hold_no_failure(
    record: ReplicaRecord, move: Move, new: Assignment, seen: Sequence[Sighting], terms: Terms
) -> ReplicaRecord:
    held = hold_no_failure(new, seen, terms)
    return record if held is new else evolve(record, move=evolve(move, replacement=held))


def _go_on(record: ReplicaRecord, move: Move, new: Assignment, seen: Sequence[Sighting], terms: Terms) -> Step:
    called_off = _why_called_off(record, new, seen, terms)
    if called_off:
        return _take_back(_keep(record, terms), move, new, called_off, terms)
    failure = find_cause(new, seen, terms.now)
    if failure is None and not is_ready(seen):
        failure = find_lateness(new, seen, terms.now, terms.replacement_deadline_s)
    if failure is not None:
        refused = note_refusal(record, failure, new.launch.offer, digest_of(seen, failure, new))
        return _fail(_keep(refused, terms), move, new, failure)
    return _rise(record, move, new, seen, terms)


def _why_called_off(record: ReplicaRecord, new: Assignment, seen: Sequence[Sighting], terms: Terms) -> str:
    if terms.unwanted:
        return terms.unwanted
    if terms.superseded:
        return tell_superseded(terms.superseded)
    if not _is_committed(record):
        return terms.called_off
    never_served = new.ready_at is None and not is_ready(seen)
    return f"{CHANGED} again" if terms.replacement_outdated and never_served else ""


def _is_committed(record: ReplicaRecord) -> bool:
    """Whether the original goes in any case."""
    original = record.assignment
    return original is None or (bool(original.stopping) and original.held_since is None)


def _keep(record: ReplicaRecord, terms: Terms) -> ReplicaRecord:
    """An original that no node was told to stop yet goes on serving, where it was to go for its replacement only."""
    original = record.assignment
    if original is None or original.held_since is None or terms.unwanted or terms.superseded:
        return record
    kept = evolve(original, stopping="", held_since=None)
    return clean_if_stable(evolve(record, assignment=kept), kept, terms.now)


def _clear(record: ReplicaRecord, move: Move, new: Assignment, now: float) -> ReplicaRecord:
    """Nothing of the replacement is left; a failure is the replica's own where no original was to stay."""
    cleared = evolve(record, move=evolve(move, replacement=None, steady_since=None))
    original = record.assignment
    stays = original is not None and (not original.stopping or original.failed)
    if stays or not new.failed or move.failure is None:
        return cleared
    return count(cleared, move.failure, now)


def _take_back(record: ReplicaRecord, move: Move, new: Assignment, why: str, terms: Terms) -> Step:
    moved = evolve(move, replacement=terms.gateways.depart(new, why), steady_since=None)
    return Step(evolve(record, move=moved), (Happening("replacement called off", "", f"{record.id}: {why}"),))


def _fail(record: ReplicaRecord, move: Move, new: Assignment, failure: ReplicaFailure) -> Step:
    # Where no single node is to blame, elsewhere is where none of them is.
    blamed = (failure.node,) if failure.node else nodes_of(new)
    moved = evolve(
        move,
        replacement=evolve(new, stopping=failure.reason, failed=True),
        steady_since=None,
        tries=move.tries + 1,
        failed_on=tuple(dict.fromkeys((*move.failed_on, *blamed))),
        failure=failure,
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
    since = (terms.now if move.steady_since is None else move.steady_since) if _holds(seen) else None
    record = evolve(record, move=evolve(move, replacement=new, steady_since=since))
    record = _keep(record, terms) if since is None else record
    released = _release(record, terms)
    if released is not record:
        why = f"{record.id}: generation {new.launch.generation} serves, since {move.why}"
        happenings.append(Happening("original stopping", "", why))
    return Step(released, tuple(happenings))


def _holds(seen: Sequence[Sighting]) -> bool:
    """Whether it is ready and its nodes say so now: what a silent one said last is no reason to let an original go."""
    return is_ready(seen) and all(each.node is not None and each.node.state is NodeState.ONLINE for each in seen)


def _release(record: ReplicaRecord, terms: Terms) -> ReplicaRecord:
    """Let the original go, once its replacement has held."""
    move, original = record.move, record.assignment
    if move is None or move.steady_since is None or original is None or original.stopping:
        return record
    if terms.now < move.steady_since + terms.soak_s:
        return record
    if move.replacement is None or not terms.gateways.know(move.replacement):
        return record
    return evolve(record, assignment=terms.gateways.depart(original, f"replaced, since {move.why}"))


def _conclude(record: ReplicaRecord, terms: Terms) -> Step:
    """The replacement takes over, or the move is over without one."""
    move = record.move
    if move is None:
        return Step(record)
    new = move.replacement
    if new is not None and not new.stopping and record.assignment is None:
        where = ", ".join(nodes_of(new))
        told = f"{record.id}, generation {new.launch.generation}: on {where}, since {move.why}"
        moved = clean_if_stable(evolve(record, assignment=new, move=None), new, terms.now)
        return Step(moved, (Happening("replica moved", "", told),))
    if new is not None:
        return Step(record)
    if move.stop_first:
        again = record.assignment
        served = again is not None and not again.stopping and again.ready_at is not None
        return Step(evolve(record, move=None)) if served or terms.unwanted else Step(record)
    over = bool(terms.called_off or terms.unwanted or record.assignment is None)
    return Step(evolve(record, move=None)) if over else Step(record)

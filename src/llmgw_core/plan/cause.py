"""Why an attempt has failed, if it has.

In: an attempt and what is seen of its shards.  Out: the one failure that counts, with its node.  Pure.
Rules: one shard's failure is the replica's; of several, the earliest that is not the loss of another shard is the
cause; what is known of a node that does not speak is nothing, until it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from llmgw_core.engine.health import FailureKind
from llmgw_core.model.deployment import Assignment, ReplicaFailure
from llmgw_core.model.shard import ShardFailure, ShardPhase, ShardStatus
from llmgw_core.plan.fabric_hint import fabric_hint
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.restart import NODE_LOST
from llmgw_core.plan.sighting import Sighting

GONE = "gone"
LATE = "not ready in time"

_PEER_LOST = FailureKind.PEER_LOST.value


@frozen
class _Told:
    """One shard's failure, and how much it explains: the lowest order is the cause."""

    order: tuple[int, float, int]
    failure: ReplicaFailure


def find_cause(assignment: Assignment, seen: Sequence[Sighting], now: float) -> ReplicaFailure | None:
    """The failure of an attempt that is to run; `None` while nothing speaks against it."""
    told = [each for sighting in seen for each in _failures(assignment, sighting, now)]
    if not told:
        return None
    cause = min(told, key=lambda each: each.order).failure
    cause = _blame_the_silent(cause, seen, now)
    return _with_hint(cause, seen)


def find_lateness(
    assignment: Assignment, seen: Sequence[Sighting], now: float, deadline_s: float
) -> ReplicaFailure | None:
    """The failure of an attempt that was never ready in its time; nothing while one of its nodes does not speak."""
    if assignment.ready_at is not None or now < assignment.placed_at + deadline_s:
        return None
    if not all(_speaks(sighting) for sighting in seen):
        return None
    late = [sighting for sighting in seen if not sighting.is_ready]
    said = "; ".join(_last_word(each) for each in late[:4])
    reason = f"not ready {now - assignment.placed_at:.0f} s after it was placed: {said}"
    node = late[0].place.node if len({each.place.node for each in late}) == 1 else ""
    rank = late[0].rank if late else 0
    failure = _failure(assignment, late[0] if late else seen[0], LATE, reason, now)
    return evolve(failure, node=node, rank=rank)


def _speaks(sighting: Sighting) -> bool:
    return sighting.reached and sighting.node is not None and sighting.node.state is NodeState.ONLINE


def _last_word(sighting: Sighting) -> str:
    where = f"rank {sighting.rank} on {sighting.place.node}"
    if sighting.status is None:
        return f"{where} has not begun"
    said = f": {sighting.status.reason}" if sighting.status.reason else ""
    return f"{where} is {sighting.status.phase.value}{said}"


def _failures(assignment: Assignment, sighting: Sighting, now: float) -> Iterator[_Told]:
    status = sighting.status
    if status is not None and (status.failure is not None or status.phase is ShardPhase.FAILED):
        yield _told_by_shard(assignment, sighting, status, now)
    elif sighting.lost:
        yield _Told((1, 0.0, sighting.rank), _failure(assignment, sighting, NODE_LOST, _lost(sighting, now), now))
    elif sighting.missing and assignment.launched:
        reason = f"{sighting.place.node} has it no longer, and nobody stopped it"
        yield _Told((1, 1.0, sighting.rank), _failure(assignment, sighting, GONE, reason, now))


def _lost(sighting: Sighting, now: float) -> str:
    if sighting.node is None:
        return f"node {sighting.place.node} was removed"
    return f"node {sighting.place.node} has not been heard for {now - sighting.node.last_heard:.0f} s"


def _told_by_shard(assignment: Assignment, sighting: Sighting, status: ShardStatus, now: float) -> _Told:
    told = status.failure or ShardFailure(FailureKind.CRASHED.value, status.reason or "it failed and did not say why")
    failure = evolve(
        _failure(assignment, sighting, told.kind, told.reason, now), exit=told.exit, log_tail=told.log_tail
    )
    return _Told((2 if told.kind == _PEER_LOST else 0, told.at, sighting.rank), failure)


def _failure(assignment: Assignment, sighting: Sighting, kind: str, reason: str, now: float) -> ReplicaFailure:
    status = sighting.status
    return ReplicaFailure(
        at=now,
        generation=assignment.launch.generation,
        node=sighting.place.node,
        rank=sighting.rank,
        kind=kind,
        reason=reason,
        argv=status.argv if status else (),
        engine_version=(status.engine_version if status else None) or assignment.engine_version,
        offer=assignment.launch.offer.key,
    )


def _blame_the_silent(cause: ReplicaFailure, seen: Sequence[Sighting], now: float) -> ReplicaFailure:
    """Shards that miss another one point at the node that has fallen silent, long before it counts as lost."""
    if cause.kind != _PEER_LOST:
        return cause
    silent = [each for each in seen if each.node is not None and each.node.state is not NodeState.ONLINE]
    if not silent:
        return cause
    return evolve(cause, node=silent[0].place.node, reason=f"{cause.reason}; {_lost(silent[0], now)}")


def _with_hint(cause: ReplicaFailure, seen: Sequence[Sighting]) -> ReplicaFailure:
    if len(seen) < 2:
        return cause
    tails = [
        each.status.failure.log_tail for each in seen if each.status is not None and each.status.failure is not None
    ]
    hint = next(filter(None, map(fabric_hint, [cause.log_tail, *tails])), "")
    return evolve(cause, reason=f"{cause.reason}; {hint}") if hint else cause

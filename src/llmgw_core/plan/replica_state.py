"""How a replica is, in one word and one line.

In: its record and the nodes as they are seen.  Out: a state with a reason.  Pure.
Rules: what is seen now counts, not what was decided; where a node does not speak, the last that was known stands, and
the reason says so. A replica that moves is as its original is, and once that goes, as its replacement is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import evolve, frozen

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.attempt import is_ready
from llmgw_core.plan.move import nodes_of, tell_replacement
from llmgw_core.plan.moving import is_passing
from llmgw_core.plan.parting import tell_stopping
from llmgw_core.plan.restart import has_failed
from llmgw_core.plan.sighting import Sighting, look_at
from llmgw_core.plan.world import ObservedNode


class ReplicaState(Enum):
    PENDING = "pending"
    """It has no place yet."""
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    """It was ready, and is not now."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    """Not wanted any more, and nothing of it is left."""
    FAILED = "failed"
    """Its last attempt failed, and the next one is not there yet."""


@frozen
class Standing:
    state: ReplicaState
    reason: str = ""
    blocked: bool = False
    """Whether it should move, and cannot before somebody does something."""


def replica_state(
    record: ReplicaRecord, nodes: Mapping[str, ObservedNode], now: float, unplaced: str = "", blocked: str = ""
) -> Standing:
    """`unplaced`: why it has no place, and `blocked`: why it cannot move, as the last `Decision` says."""
    original, move = record.assignment, record.move
    new = move.replacement if move is not None else None
    if move is not None and new is not None and not new.stopping and (original is None or original.stopping):
        leaves = f"moved: its original on {' and '.join(nodes_of(original))} stops" if original is not None else ""
        return _with_note(_with_place(new, look_at(new.launch, nodes, frozenset())), leaves)
    if original is None:
        return _without_place(record, now, unplaced)
    standing = _with_place(original, look_at(original.launch, nodes, frozenset()))
    if move is not None and new is not None:
        return _with_note(standing, f"moving: {tell_replacement(move, new)}, since {move.why}")
    if not blocked or original.stopping:
        return standing
    return evolve(_with_note(standing, f"should move: {blocked}"), blocked=not is_passing(blocked))


def _with_note(standing: Standing, note: str) -> Standing:
    return evolve(standing, reason="; ".join(filter(None, (standing.reason, note))))


def _without_place(record: ReplicaRecord, now: float, unplaced: str) -> Standing:
    if record.retired:
        return Standing(ReplicaState.STOPPED)
    if not record.failures or record.last_failure is None or not has_failed(record):
        return Standing(ReplicaState.PENDING, unplaced)
    wait = record.not_before - now
    then = f"again in {wait:.0f} s" if wait > 0 else unplaced or "again at once"
    return Standing(ReplicaState.FAILED, f"{record.last_failure.reason}; {then}")


def _with_place(assignment: Assignment, seen: Sequence[Sighting]) -> Standing:
    if assignment.stopping:
        return Standing(ReplicaState.STOPPING, tell_stopping(assignment))
    if is_ready(seen):
        return Standing(ReplicaState.READY)
    if assignment.ready_at is None:
        return Standing(ReplicaState.STARTING, _waits_for(seen))
    if all(each.is_ready or not each.reached for each in seen):
        silent = ", ".join(each.place.node for each in seen if not each.reached)
        return Standing(ReplicaState.READY, f"as far as known: {silent} does not speak")
    return Standing(ReplicaState.UNREADY, _waits_for(seen))


def _waits_for(seen: Sequence[Sighting]) -> str:
    """The first shard that is not ready; the workers come first where the head waits for them."""
    waiting = [each for each in seen if not each.is_ready]
    furthest = min(waiting, key=lambda each: (_order(each), -each.rank))
    where = f"rank {furthest.rank} on {furthest.place.node}" if len(seen) > 1 else furthest.place.node
    if furthest.status is None:
        return f"{where} has not begun" if furthest.reached else f"{where} does not speak"
    said = f": {furthest.status.reason}" if furthest.status.reason else ""
    return f"{where} is {furthest.status.phase.value}{said}"


_PHASES = list(ShardPhase)


def _order(sighting: Sighting) -> int:
    """Who is furthest back is waited for."""
    return -1 if sighting.phase is None else _PHASES.index(sighting.phase)

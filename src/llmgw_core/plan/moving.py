"""Which replicas should move, and which of them may begin now.

In: records, drains, offers.  Out: why a replica should move, and those that may begin, in order.  Pure.
Rules: at most one move of a model at a time, over the whole fleet; of a draining node as many as its operator allowed,
and none after its deadline; a change that failed for one replica goes on with no other one before it is asked for
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, evolve, field, frozen

from llmgw_core.model.deployment import Assignment, Move, MoveKind, ReplicaRecord
from llmgw_core.model.drain import Drain
from llmgw_core.model.launch import Offer
from llmgw_core.plan.move import is_exhausted, is_under_way
from llmgw_core.plan.rollout import CHANGED, is_outdated
from llmgw_core.plan.world import World

TURN = "waits for its turn: "
ANSWERS = "waits for answers to its offer: "
"""Before reasons that end by themselves."""


def is_passing(blocked: str) -> bool:
    """Whether nobody has to do anything."""
    return blocked.startswith((TURN, ANSWERS))


@frozen
class Cause:
    """Why a replica should move."""

    kind: MoveKind
    why: str
    nodes: tuple[str, ...] = ()
    """Those of its nodes that drain."""
    stop_first: bool = False
    """Whether it may stop before its replacement starts."""
    asked_at: float = 0.0
    """When it was last asked for; a move that failed before is tried anew."""
    targets: tuple[str, ...] = ()
    """Keys of the offers that are made today."""

    changed_at: float | None = None
    """When the change of how it is to run was last asked for; `None`: it runs as it is to."""

    def go_on(self, move: Move | None, now: float) -> Move:
        """The next try of a move, or the first of a new one."""
        if move is None or move.kind is not self.kind or not self.knows(move):
            return Move(self.kind, self.why, now, self.targets)
        return evolve(move, why=self.why)

    def knows(self, move: Move) -> bool:
        """Whether what the move has found out still counts: nobody asked again, and nothing else is offered."""
        return self.asked_at <= move.began and self.targets == move.targets


def find_cause_to_move(record: ReplicaRecord, world: World, offers: Sequence[Offer]) -> Cause | None:
    """`None`: it may stay where it is."""
    assignment = record.assignment
    if assignment is None:
        return None
    drains = [world.drains[node] for node in draining_nodes(assignment, world.drains)] if world.drains else []
    again = world.rollouts.get(record.model)
    changed_at = None
    if offers and is_outdated(assignment, offers):
        changed_at = max(world.applied_at, again.at if again else 0.0)
    if not drains and changed_at is None:
        return None
    targets = tuple(offer.key for offer in offers)
    if drains:
        nodes = tuple(drain.node for drain in drains)
        stop_first = all(drain.stop_first for drain in drains)
        asked_at = max(drain.at for drain in drains)
        return Cause(MoveKind.DRAIN, tell_drains(nodes), nodes, stop_first, asked_at, targets, changed_at)
    assert changed_at is not None  # noqa: S101 - else it may stay
    stop_first = again is not None and again.stop_first
    return Cause(MoveKind.CHANGE, CHANGED, (), stop_first, changed_at, targets, changed_at)


def tell_drains(nodes: Sequence[str]) -> str:
    return f"{' and '.join(nodes)} drain{'s' if len(nodes) == 1 else ''}"


def draining_nodes(assignment: Assignment, drains: Mapping[str, Drain]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.node for place in assignment.launch.places if place.node in drains))


def why_called_off(move: Move, cause: Cause | None, world: World, offers: Sequence[Offer]) -> str:
    """Why a move that has begun is not to go on while its original may stay; empty: it is."""
    if cause is None or (move.kind is MoveKind.DRAIN and cause.kind is not MoveKind.DRAIN):
        return "there is no reason to move any more"
    new = move.replacement
    if new is None:
        return ""
    target = draining_nodes(new, world.drains)
    if target:
        return f"{target[0]}, where it is, drains"
    return f"{CHANGED} again" if offers and is_outdated(new, offers) else ""


@define
class Traffic:
    """What moves now, which limits what may begin."""

    models: dict[str, str] = field(factory=dict)
    """By model of which a replica moves, why no other one may."""
    nodes: Counter[str] = field(factory=Counter)
    """By draining node, how many of its replicas move."""
    halted: dict[str, str] = field(factory=dict)
    """By model, why its change goes on with no other replica."""

    def add(self, record: ReplicaRecord, drains: Mapping[str, Drain], unplaced: str = "") -> None:
        """`unplaced`: why it has no place, after it stopped first."""
        moves = f"{record.id} stopped first and has no place: {unplaced}" if unplaced else f"{TURN}{record.id} moves"
        self.models[record.model] = moves
        if record.assignment is not None:
            self.nodes.update(draining_nodes(record.assignment, drains))


def watch_traffic(
    records: Iterable[ReplicaRecord],
    causes: Mapping[str, Cause],
    drains: Mapping[str, Drain],
    unplaced: Mapping[str, str],
) -> Traffic:
    traffic = Traffic()
    for record in records:
        if is_under_way(record):
            traffic.add(record, drains, unplaced.get(record.id, ""))
        cause = causes.get(record.id)
        if cause is not None and record.move is not None and _speaks_against_change(record.move, cause):
            traffic.halted[record.model] = _tell_failure(record, record.move)
    return traffic


def _speaks_against_change(move: Move, cause: Cause) -> bool:
    """Whether what is offered today has failed as its replacement, for whatever it moves, and nobody asked again."""
    if cause.changed_at is None or not move.tries:
        return False
    return cause.changed_at <= move.began and cause.targets == move.targets


def _is_final(move: Move, cause: Cause) -> bool:
    return move.kind is cause.kind and is_exhausted(move) and cause.knows(move)


def _tell_failure(record: ReplicaRecord, move: Move) -> str:
    said = f" on {move.failure.node}: {move.failure.reason}" if move.failure is not None else ""
    return f"the replacement of {record.id} failed{said}"


def why_not_now(record: ReplicaRecord, cause: Cause, traffic: Traffic, world: World) -> str:
    """Why its move may not begin; empty: it may, if there is room."""
    move = record.move
    if move is not None and _is_final(move, cause):
        return f"{_tell_failure(record, move)}; {_way_on(record, cause)}"
    if cause.kind is MoveKind.CHANGE and record.model in traffic.halted:
        return f"{traffic.halted[record.model]}; {_way_on(record, cause)}"
    if record.model in traffic.models:
        return traffic.models[record.model]
    for node in cause.nodes:
        drain = world.drains[node]
        if drain.until is not None and world.now >= drain.until:
            return f"the deadline of the drain of {node} has passed; drain it again to go on"
        if traffic.nodes.get(node, 0) >= drain.max_parallel:
            return f"{TURN}{traffic.nodes[node]} of {node} move already"
    return ""


def _way_on(record: ReplicaRecord, cause: Cause) -> str:
    if cause.kind is MoveKind.DRAIN:
        return f"`llmgw ctl drain {cause.nodes[0]}` tries again"
    return f"`llmgw ctl rollout {record.model} --retry` tries again, `llmgw ctl rollback {record.model}` goes back"

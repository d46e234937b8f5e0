"""How far a drain is, and what one would do before anybody orders it.

In: a world and what was decided about it.  Out: per draining node what is left, or per replica where it would go. Pure.
Rules: a node is drained when nothing is placed there and nothing runs there; it is blocked when all that is left cannot
move. A plan is made for all nodes together: what one move frees may take the next one, and no GPU is promised twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import evolve, field, frozen

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.drain import Drain
from llmgw_core.model.launch import Launch
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.explain import placer_of
from llmgw_core.plan.moving import TURN, draining_nodes
from llmgw_core.plan.placement import Placer, placing_order
from llmgw_core.plan.sighting import Stale, find_stale
from llmgw_core.plan.world import World


class DrainState(Enum):
    DRAINING = "draining"
    BLOCKED = "blocked"
    DRAINED = "drained"


@frozen
class DrainStatus:
    node: str
    state: DrainState
    left: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By replica that is still there, what it waits for."""


def drain_status(node: str, world: World, blocked: Mapping[str, str]) -> DrainStatus:
    """`blocked`: as the last `Decision` says."""
    left = {
        record.id: _waits_for(record, blocked)
        for record in world.records.values()
        if any(node in _nodes_of(each.launch) for each in record.attempts)
    }
    left |= {each.status.id: "an earlier attempt of it is being stopped" for each in _stale_on(node, world)}
    if not left:
        return DrainStatus(node, DrainState.DRAINED)
    stuck = all(name in blocked and not blocked[name].startswith(TURN) for name in left)
    return DrainStatus(node, DrainState.BLOCKED if stuck else DrainState.DRAINING, left)


def _nodes_of(launch: Launch) -> tuple[str, ...]:
    return tuple(place.node for place in launch.places)


def _stale_on(node: str, world: World) -> list[Stale]:
    seen = world.nodes.get(node)
    return list(find_stale({node: seen}, world.records)) if seen is not None else []


def _waits_for(record: ReplicaRecord, blocked: Mapping[str, str]) -> str:
    if record.assignment is not None and record.assignment.stopping:
        return "the original stops"
    move = record.move
    if move is None or move.replacement is None:
        return blocked.get(record.id, "waits")
    where = " and ".join(_nodes_of(move.replacement.launch))
    if move.replacement.stopping:
        return f"its replacement on {where} is cleaned up: {move.replacement.stopping}"
    return f"its replacement on {where} {'holds' if move.steady_since is not None else 'starts'}"


@frozen
class PlannedMove:
    replica: str
    source: tuple[str, ...]
    target: tuple[str, ...] = ()
    """Nodes; empty: there is no room."""
    stop_first: bool = False
    reason: str = ""
    """Why there is no room."""


def plan_drain(world: World, drains: Sequence[Drain]) -> tuple[PlannedMove, ...]:
    """What a drain of these nodes would do, in this order, beside what drains already."""
    world = _with_drains(world, drains)
    leaving = {drain.node for drain in drains}
    offers = placer_of(world).offers
    due = [record for record in world.records.values() if _is_on(record, leaving)]
    planned = []
    for record in sorted(due, key=lambda each: placing_order(each, offers.get(each.model, ()))):
        move, world = _plan_one(world, world.records[record.id])
        planned.append(move)
    return tuple(planned)


def _with_drains(world: World, drains: Sequence[Drain]) -> World:
    all_drains = {**world.drains, **{drain.node: drain for drain in drains}}
    nodes = {name: evolve(node, draining=True) if name in all_drains else node for name, node in world.nodes.items()}
    return evolve(world, drains=all_drains, nodes=nodes)


def _is_on(record: ReplicaRecord, nodes: set[str]) -> bool:
    assignment = record.assignment
    return assignment is not None and not assignment.stopping and bool(nodes & set(_nodes_of(assignment.launch)))


def _plan_one(world: World, record: ReplicaRecord) -> tuple[PlannedMove, World]:
    assert record.assignment is not None  # noqa: S101 - it was asked before
    source = _nodes_of(record.assignment.launch)
    under_way = record.move.replacement if record.move is not None else None
    if under_way is not None:
        return PlannedMove(record.id, source, _nodes_of(under_way.launch)), _moved(world, record, under_way.launch)
    placer = placer_of(world)
    launch = _launch(placer, record)
    if launch is not None:
        return PlannedMove(record.id, source, _nodes_of(launch)), _moved(world, record, launch)
    why = placer.why_not(record)
    allowed = all(world.drains[node].stop_first for node in draining_nodes(record.assignment, world.drains))
    launch = _launch(placer_of(_without(world, record)), record) if allowed else None
    if launch is not None:
        return PlannedMove(record.id, source, _nodes_of(launch), stop_first=True), _moved(world, record, launch)
    return PlannedMove(record.id, source, reason=why), world


def _launch(placer: Placer, record: ReplicaRecord) -> Launch | None:
    placed = placer.place(record, record.generation + 1)
    return placed.launch if placed is not None else None


def _moved(world: World, record: ReplicaRecord, launch: Launch) -> World:
    """As it is when this replica has moved."""
    there = evolve(record, generation=launch.generation, assignment=Assignment(launch, world.now), move=None)
    return _with_record(_without(world, record), there)


def _without(world: World, record: ReplicaRecord) -> World:
    """As if nothing of this replica ran; what its shards hold is free."""
    nodes = {
        name: evolve(node, shards=tuple(each for each in node.shards if each.replica != record.id))
        if node.shards is not None and any(each.replica == record.id for each in node.shards)
        else node
        for name, node in world.nodes.items()
    }
    return _with_record(evolve(world, nodes=nodes), evolve(record, assignment=None, move=None))


def _with_record(world: World, record: ReplicaRecord) -> World:
    return evolve(world, records={**world.records, record.id: record})

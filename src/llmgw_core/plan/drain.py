"""How far a drain is, and what one would do before anybody orders it.

In: a world and what was decided about it.  Out: per draining node what is left, or per replica where it would go. Pure.
Rules: a node is drained when nothing is placed there and it does not say that anything runs there, strays too; it is
blocked when all that is left cannot move. A plan is made by the code that moves, for all nodes together: what one move
frees may take the next one, no GPU is promised twice, and what would block says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import evolve, field, frozen

from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.drain import Drain
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.move import nodes_of, stops_first, tell_replacement
from llmgw_core.plan.moving import is_passing
from llmgw_core.plan.parting import tell_stopping
from llmgw_core.plan.rehearsal import rehearse
from llmgw_core.plan.roster import ordinal_of
from llmgw_core.plan.sighting import Stale, find_stale
from llmgw_core.plan.world import Decision, ObservedNode, World

STRAY = "nobody here knows this engine: "


class DrainState(Enum):
    DRAINING = "draining"
    BLOCKED = "blocked"
    DRAINED = "drained"


@frozen
class DrainStatus:
    node: str
    state: DrainState
    left: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By replica that is still there, what it waits for; by the node itself, why it is not known what runs there."""


def drain_status(node: str, world: World, blocked: Mapping[str, str]) -> DrainStatus:
    """`blocked`: as the last `Decision` says."""
    left = {
        record.id: _waits_for(record, node, blocked)
        for record in _in_order(world.records.values())
        if any(node in nodes_of(each) for each in record.attempts)
    }
    for each in _stale_on(node, world):
        left.setdefault(each.status.replica, "an earlier attempt of it is being stopped")
    for stray in _strays_on(node, world):
        left.setdefault(node, f"{STRAY}{stray}")
    silence = _silence(world.nodes.get(node))
    if silence and not left:
        left[node] = silence
    if not left:
        return DrainStatus(node, DrainState.DRAINED, _loss(node, world.nodes.get(node)))
    stuck = all(why.startswith(STRAY) or _is_stuck(blocked.get(name), why) for name, why in left.items())
    return DrainStatus(node, DrainState.BLOCKED if stuck else DrainState.DRAINING, left)


def told_state(seen: DrainState, stored: DrainState | None) -> DrainState:
    """What an operator is told: drained only once that is stored, so that the nodes and the events say so too."""
    return DrainState.DRAINING if seen is DrainState.DRAINED is not stored else seen


def _is_stuck(blocked: str | None, why: str) -> bool:
    return blocked == why and not is_passing(why)


def _in_order(records: Iterable[ReplicaRecord]) -> list[ReplicaRecord]:
    return sorted(records, key=lambda each: (each.model, ordinal_of(each.id)))


def _stale_on(node: str, world: World) -> list[Stale]:
    seen = world.nodes.get(node)
    return list(find_stale({node: seen}, world.records)) if seen is not None else []


def _strays_on(node: str, world: World) -> tuple[str, ...]:
    """What the node's agent found and does not know: nobody stops it but people."""
    seen = world.nodes.get(node)
    if seen is None or seen.shards is None or seen.facts is None:
        return ()
    return seen.facts.strays


def _silence(node: ObservedNode | None) -> str:
    """A node that is lost, or was removed, has lost its replicas, too: what it comes back with is stopped."""
    if node is None or node.shards is not None or node.state is NodeState.LOST:
        return ""
    return "does not speak: what runs there is not known"


def _loss(name: str, node: ObservedNode | None) -> dict[str, str]:
    """Nobody may take it for empty: a machine that is only cut off, or whose agent hangs, runs its engines."""
    if node is None or node.state is not NodeState.LOST:
        return {}
    return {name: "is lost: nothing is placed there any more, and what still runs there is not known"}


def _waits_for(record: ReplicaRecord, node: str, blocked: Mapping[str, str]) -> str:
    move, original = record.move, record.assignment
    if original is not None and original.stopping and node in nodes_of(original):
        return f"the original stops: {tell_stopping(original)}"
    if move is not None and move.replacement is not None:
        return tell_replacement(move, move.replacement)
    return blocked.get(record.id, "waits")


@frozen
class PlannedMove:
    replica: str
    source: tuple[str, ...]
    target: tuple[str, ...] = ()
    """Nodes; empty: it stays."""
    stop_first: bool = False
    reason: str = ""
    """Why it stays."""


def plan_drain(world: World, drains: Sequence[Drain]) -> tuple[PlannedMove, ...]:
    """What a drain of these nodes would do, beside what drains already.

    In the order in which the moves begin, and those that stay last. Engines that take unequal times to start may
    change who moves first, and so who goes where.
    """
    nodes = {drain.node for drain in drains}
    there = [record for record in _in_order(world.records.values()) if _is_on(record, nodes)]
    sources = {record.id: nodes_of(record.assignment) for record in there if record.assignment is not None}
    moves: dict[str, PlannedMove] = {}
    last = Decision()
    for after, decision in rehearse(_with_drains(world, drains)):
        last = decision
        for name in sources:
            target = _target_of(after.records[name])
            if name not in moves and target:
                moves[name] = PlannedMove(name, sources[name], target, stops_first(after.records[name]))
    stay = [name for name in sources if name not in moves]
    reasons = {name: last.blocked.get(name) or last.unplaced.get(name, "") for name in stay}
    return (*moves.values(), *(PlannedMove(name, sources[name], reason=reasons[name]) for name in stay))


def _is_on(record: ReplicaRecord, nodes: set[str]) -> bool:
    assignment = record.assignment
    return assignment is not None and not assignment.stopping and bool(nodes & set(nodes_of(assignment)))


def _with_drains(world: World, drains: Sequence[Drain]) -> World:
    all_drains = {**world.drains, **{drain.node: drain for drain in drains}}
    nodes = {name: evolve(node, draining=name in all_drains) for name, node in world.nodes.items()}
    return evolve(world, drains=all_drains, nodes=nodes)


def _target_of(record: ReplicaRecord) -> tuple[str, ...]:
    """Where it goes while it moves; empty: nowhere so far."""
    if record.move is None:
        return ()
    new = record.assignment if record.move.stop_first else record.move.replacement
    return nodes_of(new) if new is not None and not new.stopping else ()

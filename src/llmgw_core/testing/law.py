"""What holds at every moment of a fleet's history, checked pass by pass on what really runs.

`pass_of(fleet)` is one pass of the control plane with all checks; a history is a test that lets things happen between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import evolve

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Launch
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.move import is_under_way
from llmgw_core.plan.moving import draining_nodes
from llmgw_core.plan.parting import attempt_of, in_flight_s, is_told
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.world import Decision, World
from llmgw_core.testing.light_fleet import LightFleet


def pass_of(fleet: LightFleet) -> Decision:
    """One pass, with everything checked that must hold at every moment."""
    before = fleet.look()
    decision = reconcile(before)
    assert reconcile(before) == decision
    check_dropped(fleet, before, decision)
    check_stopped(fleet, before, decision)
    check_gateways(fleet, before, decision)
    fleet.carry_out(decision)
    check_records(before, fleet.world)
    check_moves(before, fleet.world)
    for record in decision.records:
        for launch in new_launches(before.records.get(record.id), record):
            check_launch(before, launch)
    for order in decision.orders:
        assert before.nodes[order.node].shards is not None
    check_rest(evolve(fleet.world, nodes=before.nodes))
    check_agents(fleet)
    return decision


def check_rest(world: World) -> None:
    """Of a world of which the decision is stored."""
    again = reconcile(world)
    assert again.records == (), "a decision that is stored leads to no other one"
    until = world.now + 1e6 if again.look_again_at is None else again.look_again_at - 0.001
    at_rest = reconcile(evolve(world, now=until))
    assert (at_rest.records, at_rest.orders) == ((), again.orders), "time alone changes nothing before it was said to"


def check_records(before: World, after: World) -> None:
    held = Counter(gpus_of(after))
    assert not held or held.most_common(1)[0][1] == 1, "a GPU promised twice"
    ports = Counter((place.node, place.port) for launch in launches_of(after) for place in launch.places)
    assert not ports or ports.most_common(1)[0][1] == 1, "a port promised twice"
    for name, record in before.records.items():
        now = after.records[name]
        assert now.generation >= record.generation
        for launch in new_launches(record, now):
            assert launch.generation > record.generation


def check_dropped(fleet: LightFleet, before: World, decision: Decision) -> None:
    """An attempt is given up only when nothing of it is left where that can be known."""
    for changed in decision.records:
        record = before.records.get(changed.id)
        for launch in new_launches(changed, record) if record is not None else ():
            for rank, place in enumerate(launch.places):
                node = fleet.nodes[place.node]
                if before.nodes[place.node].state is not NodeState.LOST:
                    assert node.linked
                    assert not node.orders
                    assert (launch.replica, launch.generation, rank) not in node.shards


def check_stopped(fleet: LightFleet, before: World, decision: Decision) -> None:
    """An original that serves is told to stop by its move only when its replacement serves and has held."""
    for changed in decision.records:
        record = before.records.get(changed.id)
        original = record.assignment if record is not None else None
        if record is None or original is None or original.stopping or not fleet.is_up(original):
            continue
        now = changed.assignment
        if now is None or now.launch != original.launch:
            lost = [place.node for place in original.launch.places if before.nodes[place.node].state is NodeState.LOST]
            assert lost, "what runs is not forgotten"
        elif now.stopping and not now.failed and _is_wanted(changed, before):
            check_released(fleet, before, changed, original)


def check_released(fleet: LightFleet, before: World, record: ReplicaRecord, original: Assignment) -> None:
    move = record.move
    if original.ready_at is None and not all(fleet.nodes[p.node].linked for p in original.launch.places):
        return  # nobody can know yet that it is ready, so it is as one that never served
    assert move is not None, "a replica that serves stops only for a reason"
    if move.stop_first:
        drains = [before.drains[node] for node in draining_nodes(original, before.drains)]
        again = before.rollouts.get(record.model)
        assert all(drain.stop_first for drain in drains) if drains else again is not None and again.stop_first
        return
    assert move.replacement is not None
    assert not move.replacement.stopping
    assert fleet.is_up(move.replacement), "an original stops only when its replacement is ready"
    assert move.steady_since is not None
    assert move.steady_since + before.soak_s <= before.now, "and has been so for the soak"


def check_gateways(fleet: LightFleet, before: World, decision: Decision) -> None:
    """No planned stop while a gateway that can be heard still routes there, or has requests there that may take on."""
    for changed in decision.records:
        old = before.records.get(changed.id)
        told = {each.launch.generation for each in old.attempts if is_told(each)} if old is not None else set()
        for each in changed.attempts:
            if is_told(each) and each.launch.generation not in told and not _has_failed(fleet, before, each):
                check_parted(fleet, before, each)


def check_parted(fleet: LightFleet, before: World, assignment: Assignment) -> None:
    attempt = attempt_of(assignment)
    old = [each for record in before.records.values() for each in record.attempts if attempt_of(each) == attempt]
    since = [each.held_since for each in old if each.held_since is not None]
    over = bool(since) and before.now >= since[0] + in_flight_s(assignment)
    for gateway in fleet.gateways.values():
        if gateway.can_be_heard(before.now, before.lost_after_s):
            assert attempt not in gateway.routes, f"{attempt} stops, and {gateway.name} still routes there"
            assert over or not gateway.lingering.get(attempt), f"{attempt} stops, and {gateway.name} has requests there"


def _has_failed(fleet: LightFleet, before: World, assignment: Assignment) -> bool:
    """Whether it is not what was planned that ends it."""
    launch = assignment.launch
    if any(before.nodes[place.node].state is NodeState.LOST for place in launch.places):
        return True
    for rank, place in enumerate(launch.places):
        status = fleet.nodes[place.node].shards.get((launch.replica, launch.generation, rank))
        if status is None or status.failure is not None:
            return True
    return False


def _is_wanted(record: ReplicaRecord, world: World) -> bool:
    """Whether a scale-down or a removal cannot be why it goes."""
    there = [each for each in world.records.values() if each.model == record.model and not each.retired]
    return len(there) <= wanted_of(world, record.model)


def wanted_of(world: World, model: str) -> int:
    there = world.catalog is not None and model in world.catalog.models
    return world.wanted.get(model, 0) if there else 0


def check_moves(before: World, after: World) -> None:
    moving = [record for record in after.records.values() if is_under_way(record)]
    models = Counter(record.model for record in moving)
    assert not models or models.most_common(1)[0][1] == 1, "two replicas of a model move"
    for record in moving:
        old = before.records.get(record.id)
        if record.assignment is None or (old is not None and is_under_way(old)):
            continue
        for node in draining_nodes(record.assignment, after.drains):
            there = [
                each for each in moving if each.assignment and node in draining_nodes(each.assignment, after.drains)
            ]
            assert len(there) <= after.drains[node].max_parallel


def check_launch(world: World, launch: Launch) -> None:
    """A new attempt is where it may be, and nowhere else."""
    profile = launch.offer.profile
    assert len({place.node for place in launch.places}) == len(launch.places) == profile.nodes
    builds, fabrics = set(), []
    for place in launch.places:
        node = world.nodes[place.node]
        assert node.state is NodeState.ONLINE
        assert place.node not in world.drains
        assert node.facts is not None
        (answer,) = [each for each in node.facts.offers if each.key == launch.offer.key]
        assert not answer.refusal
        assert not answer.weights
        assert len(set(place.gpus)) == profile.gpus_per_node
        assert not {gpu.uuid for gpu in node.facts.gpus.gpus if gpu.trouble} & set(place.gpus)
        for status in node.shards or ():
            assert not (status.phase.holds_gpus and set(status.gpus) & set(place.gpus)), "a GPU that is still held"
        builds.add((node.facts.engines[0].version, node.facts.engines[0].help_digest))
        fabrics.append({fabric.name for fabric in node.facts.fabrics})
    if profile.nodes > 1:
        assert len(builds) == 1, "a group of two builds"
        assert set.intersection(*fabrics), "a group on two fabrics"


def check_agents(fleet: LightFleet) -> None:
    """What really runs: no GPU is held by two shards."""
    for node in fleet.nodes.values():
        held = Counter(gpu for status in node.shards.values() if status.phase.holds_gpus for gpu in status.gpus)
        assert not held or held.most_common(1)[0][1] == 1, f"two shards on one GPU of {node.name}"


def new_launches(old: ReplicaRecord | None, new: ReplicaRecord) -> list[Launch]:
    """Of the attempts that are in the second and not in the first."""
    known = [each.launch for each in old.attempts] if old is not None else []
    return [each.launch for each in new.attempts if each.launch not in known]


def launches_of(world: World) -> Iterator[Launch]:
    return (each.launch for record in world.records.values() for each in record.attempts)


def gpus_of(world: World) -> Iterator[tuple[str, str]]:
    return ((place.node, gpu) for launch in launches_of(world) for place in launch.places for gpu in place.gpus)


def serving(fleet: LightFleet) -> Counter[str]:
    """By model, how many replicas really are ready and not about to be stopped."""
    return Counter(
        record.model
        for record in fleet.world.records.values()
        if any(not each.stopping and fleet.is_up(each) for each in record.attempts)
    )


def come_to_rest(fleet: LightFleet) -> Decision:
    """The same, after all faults have ended."""
    for name, node in fleet.nodes.items():
        fleet.heal(name)
        node.refuses.clear()
    for name in tuple(fleet.gateways):
        fleet.connect_gateway(name)
    return rest(fleet)


def rest(fleet: LightFleet) -> Decision:
    """Until nothing changes any more, whatever is broken."""
    for _ in range(2000):
        decision = pass_of(fleet)
        waiting = any(node.orders for node in fleet.nodes.values())
        before = [dict(node.shards) for node in fleet.nodes.values()]
        gateways = [each.observed() for each in fleet.gateways.values()]
        fleet.work_all()
        idle = not decision.records and not waiting and before == [node.shards for node in fleet.nodes.values()]
        idle = idle and gateways == [each.observed() for each in fleet.gateways.values()]
        if idle and decision.look_again_at is None:
            return decision
        fleet.pass_time(max(1.0, decision.look_again_at - fleet.world.now) if idle and decision.look_again_at else 0.5)
    raise AssertionError("it never comes to rest")

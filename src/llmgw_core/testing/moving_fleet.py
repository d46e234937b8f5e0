"""A fleet of light agents that has settled, and how far its moves are: for tests of drains and roll-outs.

Every pass is checked against the laws of `law`.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from llmgw_core.model.catalog import Catalog, Profile
from llmgw_core.model.deployment import Assignment, Move, ReplicaRecord
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.drain import DrainStatus, drain_status
from llmgw_core.plan.move import nodes_of
from llmgw_core.plan.world import Decision
from llmgw_core.testing.law import come_to_rest, pass_of
from llmgw_core.testing.light_fleet import LightFleet, fleet_of
from llmgw_core.testing.made_world import a_catalog, a_profile, a_world, accepting, node_facts, offers_of, seen_node

STEP_S = 0.5


def settled(
    models: dict[str, Profile] | None = None, nodes: int = 3, replicas: int = 1, gpus: int = 8, extra: int = 0
) -> LightFleet:
    """All is ready on `gpu-0`, `gpu-1`, … of one fabric; then come `extra` empty nodes."""
    catalog = a_catalog({"m": a_profile(1, 8)} if models is None else models, replicas)
    fleet = fleet_of(a_world(catalog, [seen_node(f"gpu-{n}", node_facts(gpus, ["ib-a"])) for n in range(nodes)]))
    come_to_rest(fleet)
    add_nodes(fleet, extra, gpus)
    return fleet


def add_nodes(fleet: LightFleet, count: int, gpus: int = 8) -> None:
    """Empty ones, which accept everything."""
    facts = accepting(node_facts(gpus, ["ib-a"]), fleet.world.offers.values())
    there = len(fleet.nodes)
    nodes = {name: seen_node(name, facts) for name in (f"gpu-{there + n}" for n in range(count))}
    world = evolve(fleet.world, nodes={**fleet.world.nodes, **nodes})
    fleet.nodes.update({name: fleet_of(world).nodes[name] for name in nodes})
    fleet.world = world


def change(fleet: LightFleet, *models: str, accepted: bool = True) -> None:
    """Another command for these models."""
    world = fleet.world
    assert world.catalog is not None
    profiles = dict(world.catalog.profiles)
    for name in (name for model in models for name in world.catalog.models[model].profiles):
        profiles[name] = evolve(profiles[name], extra_args=(*profiles[name].extra_args, "--other"))
    apply(fleet, evolve(world.catalog, profiles=profiles))
    for node in fleet.nodes.values():
        if not accepted:
            node.refuses |= {offer.key for offer in fleet.world.offers.values() if offer.model in models}


def apply(fleet: LightFleet, catalog: Catalog) -> None:
    """Another catalog, which every node accepts."""
    offers = offers_of(catalog)
    for node in fleet.nodes.values():
        node.facts = accepting(evolve(node.facts, offers=()), offers.values())
    wanted = {name: model.replicas for name, model in catalog.models.items()}
    fleet.world = evolve(fleet.world, catalog=catalog, offers=offers, wanted=wanted, applied_at=fleet.world.now)


def scale(fleet: LightFleet, model: str, replicas: int) -> None:
    fleet.world = evolve(fleet.world, wanted={**fleet.world.wanted, model: replicas})


def step(fleet: LightFleet) -> Decision:
    """A moment later, with all that was asked for one step further."""
    fleet.work_all()
    fleet.pass_time(STEP_S)
    return pass_of(fleet)


def until(fleet: LightFleet, reached: Callable[[], object]) -> Decision:
    """Step by step until it is so."""
    decision = pass_of(fleet)
    for _ in range(400):
        if reached():
            return decision
        decision = step(fleet)
    raise AssertionError("it never came to that")


def record(fleet: LightFleet, replica: str = "m/1") -> ReplicaRecord:
    return fleet.world.records[replica]


def original(fleet: LightFleet, replica: str = "m/1") -> Assignment:
    found = record(fleet, replica).assignment
    assert found is not None
    return found


def move_of(fleet: LightFleet, replica: str = "m/1") -> Move:
    found = record(fleet, replica).move
    assert found is not None
    return found


def replacement(fleet: LightFleet, replica: str = "m/1") -> Assignment:
    found = move_of(fleet, replica).replacement
    assert found is not None
    return found


def home(fleet: LightFleet, replica: str = "m/1") -> tuple[str, ...]:
    """The nodes of what counts as the replica."""
    found = record(fleet, replica).assignment
    return nodes_of(found) if found is not None else ()


def goal(fleet: LightFleet, replica: str = "m/1") -> tuple[str, ...]:
    """The nodes of its replacement; empty: there is none."""
    move = record(fleet, replica).move
    return nodes_of(move.replacement) if move is not None and move.replacement is not None else ()


def moving(fleet: LightFleet) -> list[str]:
    """Who has a replacement now."""
    return sorted(each.id for each in fleet.world.records.values() if goal(fleet, each.id))


def until_goal(fleet: LightFleet, *nodes: str) -> Decision:
    return until(fleet, lambda: goal(fleet) == nodes)


def until_home(fleet: LightFleet, *nodes: str) -> Decision:
    return until(fleet, lambda: home(fleet) == nodes)


def until_ready(fleet: LightFleet, replica: str = "m/1") -> Decision:
    """Until its replacement is, and holds."""
    return until(fleet, lambda: goal(fleet, replica) and move_of(fleet, replica).steady_since is not None)


def until_leaving(fleet: LightFleet, replica: str = "m/1") -> Decision:
    """Until its original is told to stop."""
    return until(fleet, lambda: goal(fleet, replica) and original(fleet, replica).stopping)


def crash(fleet: LightFleet, assignment: Assignment, rank: int = 0, kind: str = "crashed") -> None:
    launch = assignment.launch
    key = (launch.replica, launch.generation, rank)
    fleet.nodes[launch.places[rank].node].fail(key, kind, fleet.world.now)


def flap(fleet: LightFleet, assignment: Assignment) -> None:
    """It is not ready for a moment."""
    launch = assignment.launch
    shards = fleet.nodes[launch.places[0].node].shards
    key = (launch.replica, launch.generation, 0)
    shards[key] = evolve(shards[key], phase=ShardPhase.UNREADY)


def die(fleet: LightFleet, name: str) -> Decision:
    """The node falls silent for so long that it is lost."""
    fleet.cut(name)
    decision = pass_of(fleet)
    for _ in range(2):
        fleet.pass_time(31.0)
        decision = pass_of(fleet)
    return decision


def status(fleet: LightFleet, node: str, decision: Decision) -> DrainStatus:
    return drain_status(node, fleet.world, decision.blocked)

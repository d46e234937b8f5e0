"""Random fleets, and what may happen to them, for the laws of planning; imported by tests that have hypothesis."""

from __future__ import annotations

from attrs import evolve
from hypothesis import strategies as st

from llmgw_core.model.catalog import Catalog, Model
from llmgw_core.model.launch import OfferChecked
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.world import ObservedNode, World
from llmgw_core.testing.law import pass_of
from llmgw_core.testing.light_fleet import LightFleet, LightNode, fleet_of
from llmgw_core.testing.made_world import a_profile, a_world, node_facts, offers_of, seen_node

SHAPES = [a_profile(1, 0), a_profile(1, 1), a_profile(1, 2), a_profile(2, 1), a_profile(2, 2), a_profile(3, 1)]
Event = tuple[str, int, int]
MODELS = ("a", "org/b", "c")
GATEWAYS = ("gateway comes", "slow gateway comes", "gateway takes", "gateway takes", "gateway finishes")
PEACEFUL = (*("round",) * 8, *("work",) * 4, "hear", "step", "time", "scale", "change", "change", "remove", *GATEWAYS)
DRAINS = ("drain", "drain", "drain", "undrain", "drain all but one", "ask again")
FAULTS = (
    *("crash", "crash", "peer", "unready", "outage", "cut", "heal", "heal", "reboot", "refuse", "gpu"),
    *("gateway is cut", "gateway is cut", "gateway comes"),
)


def events(*kinds: str) -> st.SearchStrategy[Event]:
    return st.tuples(st.sampled_from(kinds), st.integers(0, 11), st.integers(0, 11))


@st.composite
def fleets(draw: st.DrawFn, willing: bool = False) -> LightFleet:
    """`willing`: every node accepts everything, in the same way."""
    catalog = draw(catalogs())
    nodes = [
        seen_node(
            f"gpu-{n}",
            node_facts(
                draw(st.sampled_from([0, 1, 2, 3, 4, 4])),
                draw(st.sampled_from([(), ("ib-a",), ("ib-a",), ("ib-b",), ("ib-a", "ib-b")])),
                draw(st.sampled_from(["1.0", "1.0", "1.1"])),
            ),
        )
        for n in range(draw(st.integers(1, 7)))
    ]
    world = a_world(catalog, nodes)
    if willing:
        return fleet_of(world)
    return fleet_of(evolve(world, nodes={name: draw(answers(node)) for name, node in world.nodes.items()}))


@st.composite
def answers(draw: st.DrawFn, node: ObservedNode) -> ObservedNode:
    """A node that refuses some offers, lacks some weights, has not answered some."""
    assert node.facts is not None
    kept = []
    for offer in node.facts.offers:
        kind = draw(
            st.sampled_from(["yes", "yes", "yes", "yes", "workers first", "head first", "no", "no weights", None])
        )
        if kind is not None:
            kept.append(
                OfferChecked(
                    offer.key,
                    refusal="unrecognized --x" if kind == "no" else "",
                    weights="missing" if kind == "no weights" else "",
                    workers_first=kind == "workers first",
                    head_first=kind == "head first",
                )
            )
    return evolve(node, facts=evolve(node.facts, offers=tuple(kept)))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    profiles = {f"p{n}": shape for n, shape in enumerate(SHAPES)}
    models = {
        name: Model(
            f"/models/{name}",
            tuple(draw(st.lists(st.sampled_from(sorted(profiles)), min_size=1, max_size=2, unique=True))),
            draw(st.sampled_from([0, 1, 2, 2, 3])),
        )
        for name in MODELS[: draw(st.integers(1, 3))]
    }
    return Catalog(models, profiles)


def happen(fleet: LightFleet, event: Event, stop_first: bool = True) -> None:
    """Something that a real fleet, or its operator, may do at any moment."""
    what, one, other = event
    names = sorted(fleet.nodes)
    node = fleet.nodes[names[one % len(names)]]
    match what:
        case "time":
            fleet.pass_time((0.5, 3.0, 10.0, 61.0, 301.0, 1801.0)[other % 6])
        case "work":
            fleet.work_all()
        case "round":
            fleet.pass_time(11.0)
            fleet.work_all()
        case "outage":
            fleet.cut(node.name)
            for _ in range(2):
                fleet.pass_time(61.0)
                pass_of(fleet)
        case "heal":
            for name in names:
                fleet.heal(name)
        case "gateway comes" | "slow gateway comes" | "gateway takes" | "gateway finishes" | "gateway is cut":
            _happen_to_gateway(fleet, what, f"edge-{one % 3}")
        case _:
            _ask(fleet, node, event, stop_first)
            _happen_on(fleet, node, what, other)


def _happen_to_gateway(fleet: LightFleet, what: str, name: str) -> None:
    gateway = fleet.gateways.get(name)
    match what:
        case "gateway comes":
            fleet.connect_gateway(name)
        case "slow gateway comes":
            fleet.connect_gateway(name, slow=True)
        case "gateway is cut":
            fleet.cut_gateway(name)
        case "gateway takes" if gateway is not None:
            gateway.take()
        case "gateway finishes" if gateway is not None:
            gateway.finish()


def _ask(fleet: LightFleet, node: LightNode, event: Event, stop_first: bool) -> None:
    """What an operator does."""
    what, one, other = event
    world = fleet.world
    models = sorted(world.catalog.models) if world.catalog else []
    match what:
        case "drain":
            until = None if other % 4 else world.now + 20.0
            fleet.drain(node.name, until=until, stop_first=stop_first and other % 2 == 0, max_parallel=1 + other % 2)
        case "undrain":
            fleet.undrain(sorted(world.drains)[one % len(world.drains)] if world.drains else node.name)
        case "drain all but one":
            for name in sorted(set(fleet.nodes) - {node.name}):
                fleet.drain(name)
        case "ask again" if models:
            fleet.ask_again(models[one % len(models)], stop_first and other < 4)
        case "scale" | "change" | "remove" if models:
            fleet.world = _other_catalog(fleet, what, one, other)
            if what == "change" and stop_first and other % 3 == 0:
                fleet.ask_again(models[one % len(models)], stop_first=True)


def _happen_on(fleet: LightFleet, node: LightNode, what: str, other: int) -> None:
    """What befalls one node, or one of its shards."""
    world, shards = fleet.world, sorted(node.shards)
    key = shards[other % len(shards)] if shards else None
    match what:
        case "hear":
            node.hear_one()
        case "step" if key:
            node.work(key)
        case "crash" | "peer" if key:
            node.fail(key, "crashed" if what == "crash" else "peer lost", world.now)
        case "unready" if key and node.shards[key].phase is ShardPhase.READY:
            node.shards[key] = evolve(node.shards[key], phase=ShardPhase.UNREADY)
        case "cut":
            fleet.cut(node.name)
        case "reboot":
            fleet.reboot(node.name)
        case "refuse" if world.offers:
            node.refuses.add(sorted(offer.key for offer in world.offers.values())[other % len(world.offers)])
        case "gpu" if node.facts.gpus.gpus:
            first, *rest = node.facts.gpus.gpus
            broken = evolve(first, trouble="" if first.trouble else "GPU requires reset")
            node.facts = evolve(node.facts, gpus=evolve(node.facts.gpus, gpus=(broken, *rest)))


def _other_catalog(fleet: LightFleet, what: str, one: int, other: int) -> World:
    world = fleet.world
    assert world.catalog is not None
    names = sorted(world.catalog.models)
    name = names[one % len(names)]
    if what == "scale":
        return evolve(world, wanted={**world.wanted, name: other % 4})
    models = dict(world.catalog.models)
    if what == "remove":
        del models[name]
    else:
        models[name] = evolve(models[name], source=f"/models/{name}-{other}")
    catalog = Catalog(models, world.catalog.profiles)
    offers = offers_of(catalog)
    for node in fleet.nodes.values():
        answered = {each.key for each in node.facts.offers}
        new = tuple(OfferChecked(offer.key) for offer in offers.values() if offer.key not in answered)
        node.facts = evolve(node.facts, offers=(*node.facts.offers, *new))
    return evolve(world, catalog=catalog, offers=offers, applied_at=world.now)

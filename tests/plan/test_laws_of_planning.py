"""What the planner never does and always reaches, whatever happens to a fleet of simulated agents."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw_core.model.catalog import Catalog, Model
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Launch, OfferChecked
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.restart import refusal_mark
from llmgw_core.plan.world import Decision, ObservedNode, World
from llmgw_core.testing.light_fleet import LightFleet, fleet_of
from llmgw_core.testing.made_world import a_profile, a_world, node_facts, offers_of, seen_node

SHAPES = [a_profile(1, 0), a_profile(1, 1), a_profile(1, 2), a_profile(2, 1), a_profile(2, 2), a_profile(3, 1)]
MODELS = ("a", "org/b", "c")
OFTEN = ("work", "work", "work", "time", "crash", "outage", "heal", "scale")
SELDOM = "hear step peer unready cut heal reboot change remove refuse gpu"
EVENTS = st.tuples(st.sampled_from([*OFTEN, *SELDOM.split()]), st.integers(0, 11), st.integers(0, 11))


@st.composite
def fleets(draw: st.DrawFn) -> LightFleet:
    catalog = draw(catalogs())
    nodes = [
        seen_node(
            f"gpu-{n}",
            node_facts(
                draw(st.integers(0, 4)),
                draw(st.sampled_from([(), ("ib-a",), ("ib-a",), ("ib-b",), ("ib-a", "ib-b")])),
                draw(st.sampled_from(["1.0", "1.0", "1.1"])),
            ),
        )
        for n in range(draw(st.integers(1, 6)))
    ]
    world = a_world(catalog, nodes)
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


def happen(fleet: LightFleet, what: str, one: int, other: int) -> None:
    """Something that a real fleet may do at any moment."""
    names = sorted(fleet.nodes)
    node = fleet.nodes[names[one % len(names)]]
    shards = sorted(node.shards)
    key = shards[other % len(shards)] if shards else None
    world = fleet.world
    match what:
        case "time":
            fleet.pass_time((0.5, 3.0, 10.0, 61.0, 301.0, 1801.0)[other % 6])
        case "work":
            fleet.work_all()
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
        case "outage":
            fleet.cut(node.name)
            for _ in range(2):
                fleet.pass_time(61.0)
                plan(fleet)
        case "heal":
            for name in names:
                fleet.heal(name)
        case "reboot":
            fleet.reboot(node.name)
        case "refuse" if world.offers:
            node.refuses.add(sorted(offer.key for offer in world.offers.values())[other % len(world.offers)])
        case "gpu" if node.facts.gpus.gpus:
            first, *rest = node.facts.gpus.gpus
            broken = evolve(first, trouble="" if first.trouble else "GPU requires reset")
            node.facts = evolve(node.facts, gpus=evolve(node.facts.gpus, gpus=(broken, *rest)))
        case "scale" | "change" | "remove" if world.catalog and world.catalog.models:
            fleet.world = _other_catalog(fleet, what, one, other)


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
    return evolve(world, catalog=catalog, offers=offers)


def plan(fleet: LightFleet) -> Decision:
    """One pass, with everything checked that must hold at every moment."""
    before = fleet.look()
    decision = reconcile(before)
    assert reconcile(before) == decision
    check_dropped(fleet, before, decision)
    fleet.carry_out(decision)
    check_records(before, fleet.world)
    for record in decision.records:
        old = before.records.get(record.id)
        if record.assignment and (old is None or old.generation < record.generation):
            check_launch(before, record.assignment.launch)
    for order in decision.orders:
        assert before.nodes[order.node].shards is not None
    again = reconcile(evolve(fleet.world, nodes=before.nodes))
    assert again.records == (), "a decision that is stored leads to no other one"
    until = fleet.world.now + 1e6 if again.look_again_at is None else again.look_again_at - 0.001
    at_rest = reconcile(evolve(fleet.world, nodes=before.nodes, now=until))
    assert (at_rest.records, at_rest.orders) == ((), again.orders), "time alone changes nothing before it was said to"
    return decision


def check_records(before: World, after: World) -> None:
    held = Counter(_gpus(after))
    assert not held or held.most_common(1)[0][1] == 1, "a GPU promised twice"
    ports = Counter((place.node, place.port) for launch in _launches(after) for place in launch.places)
    assert not ports or ports.most_common(1)[0][1] == 1, "a port promised twice"
    for name, record in before.records.items():
        now = after.records[name]
        assert now.generation >= record.generation
        if record.assignment and now.assignment and record.assignment.launch != now.assignment.launch:
            assert now.generation > record.generation


def check_dropped(fleet: LightFleet, before: World, decision: Decision) -> None:
    """An attempt is given up only when nothing of it is left where that can be known."""
    for changed in decision.records:
        record, now = before.records.get(changed.id, changed), changed.assignment
        if record.assignment is None or (now is not None and now.launch == record.assignment.launch):
            continue
        launch = record.assignment.launch
        for rank, place in enumerate(launch.places):
            node = fleet.nodes[place.node]
            if before.nodes[place.node].state is not NodeState.LOST:
                assert node.linked
                assert not node.orders
                assert (launch.replica, launch.generation, rank) not in node.shards


def check_launch(world: World, launch: Launch) -> None:
    """A new attempt is where it may be, and nowhere else."""
    profile = launch.offer.profile
    assert len({place.node for place in launch.places}) == len(launch.places) == profile.nodes
    builds, fabrics = set(), []
    for place in launch.places:
        node = world.nodes[place.node]
        assert node.state is NodeState.ONLINE
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


def _launches(world: World) -> Iterator[Launch]:
    return (record.assignment.launch for record in world.records.values() if record.assignment)


def _gpus(world: World) -> Iterator[tuple[str, str]]:
    return ((place.node, gpu) for launch in _launches(world) for place in launch.places for gpu in place.gpus)


def calm(fleet: LightFleet) -> Decision:
    """All faults have ended; until nothing changes any more."""
    for name in fleet.nodes:
        fleet.heal(name)
        fleet.nodes[name].refuses.clear()
    quiet = 0
    for _ in range(400):
        decision = plan(fleet)
        check_agents(fleet)
        waiting = any(node.orders for node in fleet.nodes.values())
        before = [dict(node.shards) for node in fleet.nodes.values()]
        fleet.work_all()
        idle = not decision.records and not waiting and before == [node.shards for node in fleet.nodes.values()]
        quiet = quiet + 1 if idle else 0
        if idle and decision.look_again_at is None:
            return decision
        fleet.pass_time(max(1.0, decision.look_again_at - fleet.world.now) if idle and decision.look_again_at else 0.5)
    raise AssertionError("it never comes to rest")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(fleets(), st.lists(EVENTS, max_size=60))
def test_whatever_happens_the_laws_hold_and_in_the_end_all_that_fits_is_ready(
    fleet: LightFleet, events: list[tuple[str, int, int]]
) -> None:
    for what, one, other in events:
        happen(fleet, what, one, other)
        plan(fleet)
        check_agents(fleet)
    decision = calm(fleet)
    world = fleet.world
    assert world.catalog is not None
    for name in world.catalog.models:
        wanted = [each for each in world.records.values() if each.model == name and not each.retired]
        assert len(wanted) == world.wanted[name]
        for record in wanted:
            if record.assignment is None:
                assert decision.unplaced[record.id]
                assert len(decision.unplaced[record.id]) <= 310
                assert not fits_somewhere(world, record)
            else:
                assert record.assignment.ready_at is not None
    running = {(s.replica, s.generation, s.rank) for n in fleet.nodes.values() for s in n.shards.values()}
    assert running == {
        (launch.replica, launch.generation, r) for launch in _launches(world) for r in range(len(launch.places))
    }


def fits_somewhere(world: World, record: ReplicaRecord) -> bool:
    """The same question, asked in the plainest way."""
    for (name, _), offer in world.offers.items():
        if name != record.model:
            continue
        fit = []
        for node in world.nodes.values():
            assert node.facts is not None
            answer = next((each for each in node.facts.offers if each.key == offer.key), None)
            whole = {gpu.uuid for gpu in node.facts.gpus.gpus if not gpu.trouble}
            free = len(whole - {gpu for where, gpu in _gpus(world) if where == node.name})
            refused = record.refused_by.get(refusal_mark(node.name, offer)) == node.facts.engines[0].help_digest
            able = answer and not answer.refusal and not answer.weights and not refused
            if able and free >= offer.profile.gpus_per_node:
                fit.append(node)
        if any(_together(group) for group in combinations(fit, offer.profile.nodes)):
            return True
    return False


def _together(group: tuple[ObservedNode, ...]) -> bool:
    if len(group) == 1:
        return True
    facts = [node.facts for node in group if node.facts]
    same = len({(each.engines[0].version, each.engines[0].help_digest) for each in facts}) == 1
    return same and bool(set.intersection(*({fabric.name for fabric in each.fabrics} for each in facts)))

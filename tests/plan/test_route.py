"""Where requests may go, and what is said of replicas that take none."""

from __future__ import annotations

from attrs import evolve

from llmgw_core.model.catalog import Profile
from llmgw_core.model.route import Absent, ModelRoute
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.route_words import why_none_is_ready
from llmgw_core.plan.world import World
from llmgw_core.testing.law import pass_of
from llmgw_core.testing.light_fleet import LightFleet, fleet_of
from llmgw_core.testing.made_world import NOW, a_catalog, a_profile, a_world, node_facts, seen_node
from llmgw_core.testing.moving_fleet import (
    crash,
    die,
    flap,
    original,
    replacement,
    scale,
    settled,
    step,
    until,
    until_leaving,
    until_ready,
)


def route(fleet: LightFleet) -> ModelRoute:
    (found,) = pass_of(fleet).routes
    return found


def led_to(fleet: LightFleet) -> list[int]:
    """The generations of `m/1` that take requests."""
    return [target.generation for target in route(fleet).targets]


def absent(fleet: LightFleet) -> Absent:
    (found,) = route(fleet).absent
    return found


def starting() -> LightFleet:
    return fleet_of(a_world(a_catalog({"m": a_profile(1, 8)}), [seen_node("gpu-0", node_facts(8))]))


def test_a_ready_replica_is_led_to_by_its_heads_address_and_port() -> None:
    fleet = settled({"m": a_profile(2, 8)}, nodes=2)
    (target,) = route(fleet).targets
    head = original(fleet).launch.places[0]
    assert (target.replica, target.generation) == ("m/1", 1)
    assert (target.address, target.port) == (head.address, head.port)
    assert route(fleet).absent == ()


def test_a_replica_that_starts_is_absent_and_says_how_far_it_is_since_when() -> None:
    fleet = starting()
    assert absent(fleet) == Absent("m/1", "starting", "not begun", NOW)
    told = []
    for _ in range(4):
        fleet.work_all()
        fleet.pass_time(1.0)
        told += [each.reason for each in route(fleet).absent]
    assert told == ["waiting to be started", "loading"]


def test_what_is_said_of_it_does_not_change_while_time_alone_passes() -> None:
    fleet = starting()
    before = route(fleet)
    fleet.pass_time(40.0)
    assert route(fleet) == before
    told = "no replica of m is ready: 1 starting (not begun for 40 s)"
    assert why_none_is_ready(before, fleet.world.now) == told


def test_a_replica_without_a_place_says_what_it_needs_and_what_there_is() -> None:
    world = a_world(a_catalog({"m": a_profile(1, 8)}), [seen_node("a", node_facts(4)), seen_node("b", node_facts(2))])
    assert absent(fleet_of(world)) == Absent("m/1", "unplaced", "needs 8 GPUs, 4 free")


def test_a_group_without_a_place_says_how_many_nodes_there_are() -> None:
    world = a_world(a_catalog({"m": a_profile(2, 8)}), [seen_node("a", node_facts(8, ["ib-a"]))])
    assert absent(fleet_of(world)) == Absent("m/1", "unplaced", "needs 2 nodes with 8 GPUs each, 1 free")


def test_a_crashed_replica_is_led_to_no_more_at_once() -> None:
    fleet = settled(nodes=1)
    crash(fleet, original(fleet))
    assert led_to(fleet) == []
    assert absent(fleet) == Absent("m/1", "failed", "crashed")
    step(fleet)
    assert absent(fleet).state == "failed"


def test_an_unready_replica_is_led_to_no_more() -> None:
    fleet = settled(nodes=1)
    flap(fleet, original(fleet))
    assert led_to(fleet) == []
    assert absent(fleet) == Absent("m/1", "unready", "not answering")


def test_a_replica_on_a_node_that_is_merely_not_heard_stays() -> None:
    fleet = settled(nodes=1)
    fleet.cut("gpu-0")
    assert led_to(fleet) == [1]
    fleet.pass_time(30.0)
    assert fleet.look().nodes["gpu-0"].state is NodeState.SUSPECT
    assert led_to(fleet) == [1]


def test_a_replica_on_a_lost_node_goes() -> None:
    fleet = settled(nodes=3)
    (home,) = [place.node for place in original(fleet).launch.places]
    (found,) = die(fleet, home).routes
    assert found.targets == ()


def test_after_a_restart_nothing_is_left_out_because_the_agents_have_not_called_yet() -> None:
    fleet = settled(replicas=2, nodes=2)
    before = pass_of(fleet).routes
    waiting = {
        name: evolve(node, state=NodeState.WAITING, shards=None, settled=False)
        for name, node in fleet.world.nodes.items()
    }
    assert reconcile(evolve(fleet.world, nodes=waiting)).routes == before
    (first, *_) = waiting
    linked = evolve(waiting[first], state=NodeState.ONLINE)  # it has reported, and not said yet what it runs
    assert reconcile(evolve(fleet.world, nodes={**waiting, first: linked})).routes == before


def test_while_it_moves_both_take_requests_from_when_the_replacement_is_ready_until_the_original_is_to_go() -> None:
    fleet = settled(extra=1)
    fleet.drain(original(fleet).launch.places[0].node)
    until(fleet, lambda: fleet.world.records["m/1"].move)
    assert led_to(fleet) == [1]
    until_ready(fleet)
    old, new = original(fleet).launch.generation, replacement(fleet).launch.generation
    assert led_to(fleet) == [old, new]
    until_leaving(fleet)
    assert led_to(fleet) == [new]


def test_a_replica_that_is_not_wanted_is_neither_led_to_nor_missed() -> None:
    fleet = settled()
    scale(fleet, "m", 0)
    assert route(fleet) == ModelRoute("m")


def test_the_models_of_the_catalog_are_all_there_with_the_least_context_that_is_stated() -> None:
    both = a_profile(1, 8, context_length=4096), a_profile(1, 4, context_length=2048)
    models: dict[str, Profile | tuple[Profile, ...]] = {"b": both, "a": a_profile()}
    world: World = a_world(a_catalog(models), [])
    routes = reconcile(world).routes
    assert [(each.name, each.context_length) for each in routes] == [("a", None), ("b", 2048)]


def test_a_shard_that_is_ready_before_the_others_is_not_enough() -> None:
    fleet = settled({"m": a_profile(2, 8)}, nodes=2)
    launch = original(fleet).launch
    key = (launch.replica, launch.generation, 1)
    shards = fleet.nodes[launch.places[1].node].shards
    shards[key] = evolve(shards[key], phase=ShardPhase.UNREADY)
    assert led_to(fleet) == []

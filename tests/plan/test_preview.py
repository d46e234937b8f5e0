"""What `ctl plan` says of another catalog."""

from attrs import evolve

from llmgw_core.model.catalog import Catalog, Profile
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.preview import what_changes
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.world import World
from llmgw_core.testing.made_world import (
    a_catalog,
    a_profile,
    a_world,
    as_reported,
    decided,
    node_facts,
    offers_of,
    seen_node,
)


def running(catalog: Catalog, nodes: int = 2) -> World:
    """Everything of it is ready."""
    world = a_world(catalog, [seen_node(f"gpu-{n}", node_facts(8, ["ib-a"])) for n in range(nodes)])
    world = decided(world, reconcile(world))
    for phase in (ShardPhase.PREPARED, ShardPhase.READY):
        world = as_reported(world, phase)
        world = decided(world, reconcile(world))
    return world


def lines(world: World, models: dict[str, Profile], replicas: int = 1) -> list[str]:
    catalog = a_catalog(models, replicas)
    wanted = dict.fromkeys(catalog.models, replicas)
    after = evolve(world, catalog=catalog, wanted=wanted, offers=offers_of(catalog))
    return [str(change) for change in what_changes(world, after)]


def test_the_same_catalog_changes_nothing() -> None:
    assert lines(running(a_catalog({"a": a_profile(1, 8)})), {"a": a_profile(1, 8)}) == []


def test_what_is_new_says_where_it_would_start_and_on_which_condition() -> None:
    world = running(a_catalog({"a": a_profile(1, 8)}))
    assert lines(world, {"a": a_profile(1, 8), "b": a_profile(1, 4)}) == [
        "new model b: 1 replica",
        "start b/1: on gpu-1 with profile b-0, if the node accepts it",
    ]


def test_more_and_fewer_replicas() -> None:
    world = running(a_catalog({"a": a_profile(1, 8)}))
    assert lines(world, {"a": a_profile(1, 8)}, 2) == [
        "scaled a: from 1 to 2 replicas",
        "start a/2: on gpu-1 with profile a-0",
    ]
    assert lines(world, {"a": a_profile(1, 8)}, 0) == ["scaled a: from 1 to 0 replicas", "stop a/1"]


def test_what_would_go_makes_room_for_what_would_come() -> None:
    world = running(a_catalog({"a": a_profile(2, 8)}))
    assert lines(world, {"b": a_profile(2, 8)}) == [
        "model removed a",
        "new model b: 1 replica",
        "stop a/1",
        "start b/1: on gpu-0 and gpu-1 with profile b-0, if the nodes accept it",
    ]


def test_a_changed_profile_says_what_would_be_started_anew() -> None:
    world = running(a_catalog({"a": a_profile(1, 8)}, 2))
    assert lines(world, {"a": a_profile(1, 4)}, 2) == [
        "restart a/1: on gpu-0 with profile a-0, if the node accepts it",
        "restart a/2: on gpu-1 with profile a-0, if the node accepts it",
    ]


def test_what_would_lose_its_place_is_said_up_front() -> None:
    world = running(a_catalog({"a": a_profile(1, 8)}))
    assert lines(world, {"a": a_profile(3, 8)}) == [
        "no room a/1: needs 3 nodes with 8 free GPUs on one fabric; ib-a has 2; it runs now, and would be stopped",
    ]


def test_the_first_catalog_is_all_new() -> None:
    world = evolve(a_world(Catalog(), [seen_node("gpu-0")]), catalog=None)
    assert lines(world, {"a": a_profile(1, 8)}) == [
        "new model a: 1 replica",
        "start a/1: on gpu-0 with profile a-0, if the node accepts it",
    ]

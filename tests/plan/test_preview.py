"""What `ctl plan` says of another catalog."""

from attrs import evolve

from llmgw_core.model.catalog import Catalog, Profile
from llmgw_core.model.route import Affinity
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


def test_a_changed_profile_says_where_what_serves_would_move_to() -> None:
    """One after the other: what one leaves may take the next."""
    world = running(a_catalog({"a": a_profile(1, 8)}, 2), nodes=3)
    assert lines(world, {"a": a_profile(1, 6)}, 2) == [
        "move a/1: to gpu-2 with profile a-0, if the node accepts it",
        "move a/2: to gpu-0 with profile a-0, if the node accepts it",
    ]


def test_a_changed_profile_starts_anew_what_never_served() -> None:
    catalog = a_catalog({"a": a_profile(1, 8)})
    world = a_world(catalog, [seen_node("gpu-0", node_facts(8))])
    world = as_reported(decided(world, reconcile(world)), ShardPhase.STARTING)
    assert lines(world, {"a": a_profile(1, 4)}) == ["restart a/1: on gpu-0 with profile a-0, if the node accepts it"]


def test_what_serves_and_has_no_room_for_a_replacement_stays_as_it_is_and_says_why() -> None:
    world = running(a_catalog({"a": a_profile(1, 8)}))
    assert lines(world, {"a": a_profile(3, 8)}) == [
        "no room a/1: no room for its replacement: it stays as it is; "
        "needs 3 nodes with 8 free GPUs on one fabric; ib-a has 1 (gpu-0 has no free GPUs of 8)",
    ]


def test_who_moves_already_to_where_it_should_be_is_not_told_again() -> None:
    world = running(a_catalog({"a": a_profile(1, 8)}))
    catalog = a_catalog({"a": a_profile(1, 4)})
    changed = a_world(
        catalog, [seen_node(name, node_facts(8, ["ib-a"])) for name in world.nodes], records=world.records
    )
    changed = as_reported(changed, ShardPhase.READY)
    moving = as_reported(decided(changed, reconcile(changed)), ShardPhase.STARTING)
    assert moving.records["a/1"].move is not None
    assert lines(moving, {"a": a_profile(1, 4)}) == []


def test_the_first_catalog_is_all_new() -> None:
    world = evolve(a_world(Catalog(), [seen_node("gpu-0")]), catalog=None)
    assert lines(world, {"a": a_profile(1, 8)}) == [
        "new model a: 1 replica",
        "start a/1: on gpu-0 with profile a-0, if the node accepts it",
    ]


def test_other_names_and_another_affinity_start_nothing_anew() -> None:
    world = running(a_catalog({"m": a_profile()}))
    assert world.catalog is not None
    model = evolve(world.catalog.models["m"], aliases=("chat", "gpt"), affinity=Affinity.PREFIX)
    after = evolve(world, catalog=evolve(world.catalog, models={"m": model}))
    assert [str(each) for each in what_changes(world, after)] == ["routed m: aliases: chat, gpt; affinity: prefix"]
    assert reconcile(after).records == ()

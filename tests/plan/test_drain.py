"""How far drains are, what they would do, and what more than one of them do together. Numbers are of field cases."""

from attrs import evolve

from llmgw_core.model.drain import Drain
from llmgw_core.plan.drain import DrainState, PlannedMove, drain_status, plan_drain, told_state
from llmgw_core.plan.explain import explain
from llmgw_core.testing.law import pass_of, rest, serving
from llmgw_core.testing.light_fleet import LightFleet
from llmgw_core.testing.made_world import a_catalog, a_profile, a_world, node_facts, seen_node, with_node
from llmgw_core.testing.moving_fleet import (
    add_nodes,
    crash,
    die,
    goal,
    home,
    moving,
    original,
    replacement,
    scale,
    settled,
    status,
    step,
    until,
    until_leaving,
    until_ready,
)


def test_f03_two_replicas_of_a_model_on_one_node_move_one_at_a_time() -> None:
    fleet = settled({"m": a_profile(1, 4)}, nodes=1, replicas=2, extra=2)
    fleet.drain("gpu-0", max_parallel=2)
    until_leaving(fleet, "m/1")
    assert moving(fleet) == ["m/1"]
    until(fleet, lambda: goal(fleet, "m/2"))
    assert home(fleet, "m/1") == ("gpu-1",), "the second begins when all of the first is done"
    rest(fleet)
    assert serving(fleet)["m"] == 2


def test_f34_two_nodes_drained_together_never_move_both_replicas_of_a_model() -> None:
    fleet = settled(nodes=2, replicas=2, extra=2)
    fleet.drain("gpu-0")
    fleet.drain("gpu-1")
    decision = pass_of(fleet)
    assert moving(fleet) == ["m/1"]
    assert decision.blocked == {"m/2": "waits for its turn: m/1 moves"}
    assert status(fleet, "gpu-1", decision).state is DrainState.DRAINING
    for _ in range(200):
        step(fleet)
        assert len(moving(fleet)) <= 1
        assert serving(fleet)["m"] == 2
    assert {*home(fleet, "m/1"), *home(fleet, "m/2")} == {"gpu-2", "gpu-3"}


def test_f04_without_room_the_original_stays_and_says_why() -> None:
    fleet = settled(nodes=2, replicas=2)
    fleet.drain("gpu-0")
    decision = rest(fleet)
    assert (home(fleet), serving(fleet)["m"]) == (("gpu-0",), 2)
    found = status(fleet, "gpu-0", decision)
    assert found.state is DrainState.BLOCKED
    assert found.left == {
        "m/1": "no room for its replacement: needs 8 free GPUs on one node; gpu-0 drains, gpu-1 has no free GPUs of 8; "
        "make room, or let it stop first with --allow-stop-first"
    }


def test_a_drain_goes_on_by_itself_as_soon_as_there_is_room() -> None:
    for by_scaling in (False, True):
        fleet = settled({"m": a_profile(1, 8), "other": a_profile(1, 8)}, nodes=2)
        fleet.drain(home(fleet, "m/1")[0])
        rest(fleet)
        assert not goal(fleet)
        before = home(fleet)
        if by_scaling:
            scale(fleet, "other", 0)
        else:
            add_nodes(fleet, 1)
        rest(fleet)
        assert (home(fleet) != before, serving(fleet)["m"]) == (True, 1)


def test_f42_nothing_new_is_placed_on_a_draining_node_and_explain_names_it() -> None:
    fleet = settled({"m": a_profile(1, 2)}, nodes=2)
    empty = next(name for name in fleet.nodes if (name,) != home(fleet))
    fleet.drain(empty)
    scale(fleet, "m", 8)
    decision = rest(fleet)
    assert fleet.nodes[empty].shards == {}
    assert f"{empty} drains" in decision.unplaced["m/5"]
    found = explain(fleet.look(), "m")
    assert found.draining == (empty,)
    assert f"{empty} drains" in found.profiles[0].summary


def test_of_many_nodes_those_that_drain_are_named() -> None:
    fleet = settled(nodes=5, replicas=5)
    for name in ("gpu-1", "gpu-3"):
        fleet.drain(name)
    summary = explain(fleet.look(), "m").profiles[0].summary
    assert summary == (
        "needs 8 free GPUs on one node; of 5 nodes 2 drain (gpu-1, gpu-3), 3 have fewer (most: 0 on gpu-0)"
    )


def test_f42_a_replacement_is_never_placed_on_another_draining_node() -> None:
    fleet = settled(nodes=3, replicas=2)
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        fleet.drain(name)
    decision = rest(fleet)
    assert moving(fleet) == []
    assert [status(fleet, name, decision).state for name in fleet.nodes] == [
        DrainState.BLOCKED,
        DrainState.BLOCKED,
        DrainState.DRAINED,
    ]


def test_as_many_move_at_a_time_as_was_asked_for() -> None:
    models = {name: a_profile(1, 2) for name in "abcd"}
    for parallel in (1, 2, 3):
        fleet = settled(models, nodes=1, extra=2)
        fleet.drain("gpu-0", max_parallel=parallel)
        decision = pass_of(fleet)
        assert moving(fleet) == [f"{name}/1" for name in "abcd"[:parallel]]
        assert decision.blocked["d/1"] == f"waits for its turn: {parallel} of gpu-0 move already"
        rest(fleet)
        assert fleet.nodes["gpu-0"].shards == {}


def test_who_has_no_room_keeps_nobody_else_from_moving() -> None:
    fleet = settled({"large": a_profile(1, 6), "small": a_profile(1, 2)}, nodes=1)
    add_nodes(fleet, 1, gpus=4)
    fleet.drain("gpu-0")
    decision = rest(fleet)
    assert (home(fleet, "large/1"), home(fleet, "small/1")) == (("gpu-0",), ("gpu-1",))
    assert status(fleet, "gpu-0", decision).left.keys() == {"large/1"}


def test_a_status_tells_how_far_each_replica_is() -> None:
    fleet = settled(nodes=1, extra=1)
    fleet.drain("gpu-0")
    decision = pass_of(fleet)
    assert status(fleet, "gpu-0", decision).left == {"m/1": "its replacement on gpu-1 starts"}
    decision = until_ready(fleet)
    assert status(fleet, "gpu-0", decision).left == {"m/1": "its replacement on gpu-1 is ready and must hold"}
    decision = until_leaving(fleet)
    assert status(fleet, "gpu-0", decision).left == {"m/1": "the original stops: replaced, since gpu-0 drains"}
    decision = rest(fleet)
    assert status(fleet, "gpu-0", decision).left == {}
    assert status(fleet, "gpu-0", decision).state is DrainState.DRAINED


def test_drained_is_told_once_it_is_stored_and_all_else_as_it_is_seen() -> None:
    draining, blocked, drained = DrainState
    for stored in (None, *DrainState):
        assert told_state(draining, stored) is draining
        assert told_state(blocked, stored) is blocked
        assert told_state(drained, stored) is (drained if stored is drained else draining)


def test_a_replacement_that_is_cleaned_up_says_why() -> None:
    fleet = settled(nodes=1, extra=2)
    fleet.drain("gpu-0")
    until_ready(fleet)
    crash(fleet, replacement(fleet), kind="out of memory")
    decision = pass_of(fleet)
    assert status(fleet, "gpu-0", decision).left == {"m/1": "its replacement on gpu-1 is cleaned up: out of memory"}
    assert original(fleet).stopping == ""


def test_a_node_that_does_not_speak_is_not_called_drained_before_it_is_lost() -> None:
    fleet = settled(nodes=1, extra=2)
    fleet.drain("gpu-2")
    fleet.cut("gpu-2")
    fleet.pass_time(30.0)
    decision = pass_of(fleet)
    assert status(fleet, "gpu-2", decision).state is DrainState.DRAINING
    assert status(fleet, "gpu-2", decision).left == {"gpu-2": "does not speak: what runs there is not known"}
    lost = status(fleet, "gpu-2", die(fleet, "gpu-2"))
    assert lost.state is DrainState.DRAINED
    assert lost.left == {"gpu-2": "is lost: nothing is placed there any more, and what still runs there is not known"}


def test_a_group_moves_whole_into_one_fabric_when_one_of_its_nodes_drains() -> None:
    fleet = settled({"m": a_profile(2, 8)}, nodes=4)
    assert home(fleet) == ("gpu-0", "gpu-1")
    fleet.drain("gpu-1")
    pass_of(fleet)
    assert goal(fleet) == ("gpu-2", "gpu-3")
    rest(fleet)
    assert home(fleet) == ("gpu-2", "gpu-3")


# What a drain would do.


def planned(fleet: LightFleet, *nodes: str, stop_first: bool = False) -> tuple[PlannedMove, ...]:
    return plan_drain(fleet.look(), [Drain(node, "an operator", fleet.world.now, None, stop_first) for node in nodes])


def test_a_plan_says_who_goes_where_and_who_has_no_room() -> None:
    fleet = settled({"a": a_profile(1, 4), "b": a_profile(1, 4)}, nodes=1)
    add_nodes(fleet, 1, gpus=4)
    assert planned(fleet, "gpu-0") == (
        PlannedMove("a/1", ("gpu-0",), ("gpu-1",)),
        PlannedMove(
            "b/1",
            ("gpu-0",),
            reason="no room for its replacement: needs 4 free GPUs on one node; gpu-0 drains, gpu-1 has no free GPUs "
            "of 4; make room, or let it stop first with --allow-stop-first",
        ),
    )


def test_a_plan_for_all_nodes_moves_nothing() -> None:
    fleet = settled(nodes=3, replicas=2)
    moves = planned(fleet, *fleet.nodes)
    assert [(move.replica, move.target) for move in moves] == [("m/1", ()), ("m/2", ())]
    assert moves[0].reason.startswith(
        "no place for its replacement: needs 8 free GPUs on one node; gpu-0 drains, gpu-1"
    )


def test_a_plan_says_who_would_stop_first() -> None:
    fleet = settled({"m": a_profile(2, 8)}, nodes=3)
    assert planned(fleet, "gpu-1", stop_first=True) == (
        PlannedMove("m/1", ("gpu-0", "gpu-1"), ("gpu-0", "gpu-2"), stop_first=True),
    )


def test_a_plan_counts_with_the_drains_that_go_on() -> None:
    fleet = settled(nodes=2, replicas=2, extra=1)
    fleet.drain("gpu-2")
    (move,) = planned(fleet, "gpu-0")
    assert (move.target, "gpu-2 drains" in move.reason) == ((), True)
    fleet.undrain("gpu-2")
    fleet.drain("gpu-0")
    step(fleet)
    assert planned(fleet, "gpu-0") == (PlannedMove("m/1", ("gpu-0",), ("gpu-2",)),), "what moves already is told too"


def test_a_node_on_which_a_stray_runs_is_not_drained() -> None:
    """Its agent's state was emptied: nobody moves or stops what runs there, so somebody must be told."""
    world = a_world(a_catalog({}), [seen_node("gpu-0", evolve(node_facts(), strays=("m/1#0@3: pid 7 (python)",)))])
    found = drain_status("gpu-0", world, {})
    assert (found.state, dict(found.left)) == (
        DrainState.BLOCKED,
        {"gpu-0": "nobody here knows this engine: m/1#0@3: pid 7 (python)"},
    )
    gone = with_node(world, "gpu-0", facts=node_facts())
    assert drain_status("gpu-0", gone, {}).state is DrainState.DRAINED

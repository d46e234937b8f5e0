"""A drain, and whatever may come between: each has one right outcome.

| in mid-move                          | outcome                                                                   |
|--------------------------------------|---------------------------------------------------------------------------|
| the source node dies                 | the replacement takes over, whatever it is at; nothing else is started    |
| the target dies                      | the original stays; one more try, elsewhere                               |
| the replacement fails                | cleaned up; tried once elsewhere; then blocked with the reason            |
| the replacement is not ready again   | its soak begins anew                                                      |
| the original fails                   | the replacement takes over                                                |
| undrain                              | the replacement goes, the original stays; too late once it was told to go |
| the node is drained again            | what moves goes on; what was blocked is tried anew                        |
| the target is drained                | that replacement goes, another one comes up elsewhere                     |
| fewer replicas are wanted            | those that are not ready go first, then the one that moves                |
| the model is removed                 | original and replacement go                                               |
| the catalog is changed               | a replacement of the old kind goes, one of the new kind comes             |
| the deadline passes                  | what moves goes on, nothing else begins                                   |
| a node is silent, and not lost yet   | nothing is concluded                                                      |
| the control plane starts anew        | nothing: records and what is seen are all that counts                     |
"""

from attrs import evolve

from llmgw_core.model.catalog import Catalog
from llmgw_core.plan.drain import DrainState
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.restart import STABLE_S
from llmgw_core.testing.law import come_to_rest, pass_of, rest, serving
from llmgw_core.testing.light_fleet import LightFleet
from llmgw_core.testing.made_world import a_profile, with_node
from llmgw_core.testing.moving_fleet import (
    apply,
    change,
    crash,
    die,
    flap,
    goal,
    home,
    move_of,
    moving,
    original,
    record,
    replacement,
    scale,
    settled,
    status,
    step,
    until,
    until_goal,
    until_home,
    until_leaving,
    until_ready,
)


def draining(nodes: int = 3, **terms: object) -> LightFleet:
    """`m/1` on gpu-0, which drains, with its replacement placed on gpu-1."""
    fleet = settled(nodes=nodes)
    assert home(fleet) == ("gpu-0",)
    fleet.drain("gpu-0", **terms)
    pass_of(fleet)
    assert goal(fleet) == ("gpu-1",)
    return fleet


def test_f01_the_replacement_is_ready_and_has_held_before_the_original_is_told_to_stop() -> None:
    fleet = draining()
    until_ready(fleet)
    ready_at = fleet.world.now
    until_leaving(fleet)
    assert fleet.world.now == ready_at + fleet.world.soak_s
    decision = rest(fleet)
    assert (home(fleet), serving(fleet)["m"], record(fleet).move) == (("gpu-1",), 1, None)
    assert status(fleet, "gpu-0", decision).state is DrainState.DRAINED
    assert record(fleet).failures == 0


def test_when_the_source_node_dies_the_replacement_takes_over_whatever_it_is_at() -> None:
    for ready in (False, True):
        fleet = draining()
        if ready:
            until_ready(fleet)
        generation = replacement(fleet).launch.generation
        die(fleet, "gpu-0")
        rest(fleet)
        assert (home(fleet), original(fleet).launch.generation) == (("gpu-1",), generation)
        assert serving(fleet)["m"] == 1


def test_when_the_target_dies_the_original_stays_and_another_one_is_tried() -> None:
    for ready in (False, True):
        fleet = draining()
        if ready:
            until_ready(fleet)
        die(fleet, "gpu-1")
        assert not original(fleet).stopping
        rest(fleet)
        assert home(fleet) == ("gpu-2",)


def test_a_replacement_that_fails_is_tried_once_elsewhere() -> None:
    fleet = draining()
    step(fleet)
    crash(fleet, replacement(fleet))
    until_goal(fleet, "gpu-2")
    assert (move_of(fleet).tries, original(fleet).stopping) == (1, "")
    assert record(fleet).failures == 0, "what fails of a move is not the replica's failure"
    rest(fleet)
    assert home(fleet) == ("gpu-2",)


def twice_failed() -> LightFleet:
    fleet = draining(nodes=4)
    for target in ("gpu-1", "gpu-2"):
        until_goal(fleet, target)
        step(fleet)
        crash(fleet, replacement(fleet), kind="out of memory")
    until(fleet, lambda: not goal(fleet))
    return fleet


def test_after_two_that_failed_the_drain_is_blocked_and_the_original_untouched() -> None:
    fleet = twice_failed()
    decision = rest(fleet)
    assert (home(fleet), serving(fleet)["m"]) == (("gpu-0",), 1)
    found = status(fleet, "gpu-0", decision)
    assert found.state is DrainState.BLOCKED
    assert found.left == {
        "m/1": "the replacement of m/1 failed on gpu-2: out of memory; `llmgw ctl drain gpu-0` tries again"
    }
    assert fleet.nodes["gpu-2"].shards == {}


def test_a_drain_that_is_asked_for_again_tries_anew_what_failed() -> None:
    fleet = twice_failed()
    fleet.drain("gpu-0")
    pass_of(fleet)
    assert (goal(fleet), move_of(fleet).tries) == (("gpu-1",), 0)
    rest(fleet)
    assert home(fleet) == ("gpu-1",)


def test_another_catalog_is_another_try_of_what_failed() -> None:
    fleet = twice_failed()
    change(fleet, "m")
    pass_of(fleet)
    assert (goal(fleet), move_of(fleet).tries) == (("gpu-1",), 0)


def test_a_second_drain_of_the_node_changes_nothing_for_what_moves() -> None:
    fleet = draining()
    until_ready(fleet)
    before = record(fleet)
    fleet.drain("gpu-0", max_parallel=3)
    assert pass_of(fleet).records == ()
    assert record(fleet) == before


def test_a_replacement_that_was_not_ready_for_a_moment_begins_its_soak_anew() -> None:
    fleet = draining()
    until_ready(fleet)
    fleet.pass_time(fleet.world.soak_s - 1.0)
    flap(fleet, replacement(fleet))
    pass_of(fleet)
    assert move_of(fleet).steady_since is None
    step(fleet)
    again = fleet.world.now
    until_leaving(fleet)
    assert fleet.world.now == again + fleet.world.soak_s


def test_when_the_original_fails_the_replacement_takes_over() -> None:
    for ready in (False, True):
        fleet = draining()
        if ready:
            until_ready(fleet)
        crash(fleet, original(fleet))
        until_home(fleet, "gpu-1")
        assert record(fleet).failures == 1
        assert record(fleet).move is None
        rest(fleet)
        assert (home(fleet), serving(fleet)["m"]) == (("gpu-1",), 1)


def test_when_both_fail_the_replica_is_placed_anew_after_its_back_off() -> None:
    fleet = draining()
    until_ready(fleet)
    crash(fleet, replacement(fleet))
    crash(fleet, original(fleet))
    until(fleet, lambda: not record(fleet).attempts)
    assert record(fleet).not_before > fleet.world.now
    rest(fleet)
    assert serving(fleet)["m"] == 1
    assert home(fleet) != ("gpu-0",)


def test_a_replacement_that_fails_when_the_original_was_told_to_stop_is_the_replicas_failure() -> None:
    fleet = draining()
    until_leaving(fleet)
    crash(fleet, replacement(fleet), kind="killed")
    until(fleet, lambda: not record(fleet).attempts)
    assert record(fleet).failures == 1
    failure = record(fleet).last_failure
    assert failure is not None
    assert failure.kind == "killed"


def test_undrain_takes_the_replacement_back_at_every_step_before_the_original_is_told_to_stop() -> None:
    for reach in (pass_of, step, until_ready):
        fleet = draining()
        reach(fleet)
        fleet.undrain("gpu-0")
        rest(fleet)
        assert (home(fleet), original(fleet).launch.generation, record(fleet).move) == (("gpu-0",), 1, None)
        assert fleet.nodes["gpu-1"].shards == {}


def test_undrain_is_too_late_once_the_original_is_told_to_stop() -> None:
    fleet = draining()
    until_leaving(fleet)
    fleet.undrain("gpu-0")
    rest(fleet)
    assert (home(fleet), record(fleet).move) == (("gpu-1",), None)


def test_undrain_ends_a_move_that_was_blocked() -> None:
    fleet = twice_failed()
    fleet.undrain("gpu-0")
    decision = rest(fleet)
    assert (record(fleet).move, decision.blocked) == (None, {})


def test_when_the_target_drains_too_the_replacement_goes_elsewhere() -> None:
    for reach in (pass_of, step, until_ready):
        fleet = draining()
        reach(fleet)
        fleet.drain("gpu-1")
        until_goal(fleet, "gpu-2")
        assert move_of(fleet).tries == 0, "that is no failure"
        rest(fleet)
        assert home(fleet) == ("gpu-2",)


def test_a_target_that_drains_after_the_original_was_told_to_stop_is_left_later() -> None:
    fleet = draining()
    until_leaving(fleet)
    fleet.drain("gpu-1")
    rest(fleet)
    assert (home(fleet), serving(fleet)["m"]) == (("gpu-2",), 1)


def test_of_too_many_the_one_that_moves_goes_with_its_replacement() -> None:
    fleet = settled({"m": a_profile(1, 4)}, nodes=2, replicas=2)
    fleet.drain(home(fleet, "m/1")[0])
    step(fleet)
    assert moving(fleet) == ["m/1"]
    scale(fleet, "m", 1)
    rest(fleet)
    assert (record(fleet, "m/1").retired, record(fleet, "m/2").retired) == (True, False)
    assert serving(fleet)["m"] == 1


def test_of_too_many_one_that_is_not_ready_goes_before_the_one_that_moves() -> None:
    fleet = settled({"m": a_profile(1, 4)}, nodes=2, replicas=2, extra=1)
    fleet.drain(home(fleet, "m/1")[0])
    until_leaving(fleet)
    flap(fleet, original(fleet, "m/2"))
    scale(fleet, "m", 1)
    rest(fleet)
    assert (record(fleet, "m/1").retired, record(fleet, "m/2").retired) == (False, True)


def test_who_is_wanted_again_while_it_goes_is_placed_anew_when_all_of_it_is_gone() -> None:
    fleet = draining()
    until_ready(fleet)
    scale(fleet, "m", 0)
    pass_of(fleet)
    assert original(fleet).stopping
    assert replacement(fleet).stopping
    scale(fleet, "m", 1)
    rest(fleet)
    assert (serving(fleet)["m"], record(fleet).move) == (1, None)
    assert home(fleet) != ("gpu-0",)


def test_a_model_that_is_removed_takes_original_and_replacement_with_it() -> None:
    fleet = draining()
    until_ready(fleet)
    apply(fleet, Catalog())
    decision = rest(fleet)
    assert record(fleet).retired
    assert all(not node.shards for node in fleet.nodes.values())
    assert status(fleet, "gpu-0", decision).state is DrainState.DRAINED


def test_a_catalog_change_in_mid_drain_replaces_a_replacement_of_the_old_kind() -> None:
    for reach in (step, until_ready):
        fleet = draining()
        reach(fleet)
        change(fleet, "m")
        decision = pass_of(fleet)
        assert [each.kind for each in decision.happenings] == ["replacement called off"]
        rest(fleet)
        ((_, offer),) = fleet.world.offers.items()
        assert (home(fleet), original(fleet).launch.offer) == (("gpu-1",), offer)


def test_a_catalog_change_after_the_original_was_told_to_stop_is_a_roll_out_of_its_own() -> None:
    fleet = draining()
    until_leaving(fleet)
    change(fleet, "m")
    rest(fleet)
    ((_, offer),) = fleet.world.offers.items()
    assert (original(fleet).launch.offer, home(fleet)) == (offer, ("gpu-2",))


def test_after_the_deadline_what_moves_goes_on_and_nothing_else_begins() -> None:
    fleet = settled({"a": a_profile(1, 4), "b": a_profile(1, 4)}, nodes=1, extra=2)
    fleet.drain("gpu-0", until=fleet.world.now + 5.0)
    pass_of(fleet)
    assert moving(fleet) == ["a/1"]
    decision = rest(fleet)
    assert (home(fleet, "a/1"), home(fleet, "b/1")) == (("gpu-1",), ("gpu-0",))
    found = status(fleet, "gpu-0", decision)
    assert found.state is DrainState.BLOCKED
    assert found.left == {"b/1": "the deadline of the drain of gpu-0 has passed; drain it again to go on"}
    fleet.drain("gpu-0")
    rest(fleet)
    assert home(fleet, "b/1") != ("gpu-0",)


def test_a_silent_target_is_no_reason_for_anything_before_it_is_lost() -> None:
    fleet = draining()
    until_ready(fleet)
    fleet.cut("gpu-1")
    fleet.pass_time(30.0)
    pass_of(fleet)
    assert (original(fleet).stopping, goal(fleet), move_of(fleet).steady_since) == ("", ("gpu-1",), None)
    fleet.heal("gpu-1")
    pass_of(fleet)
    assert move_of(fleet).steady_since == fleet.world.now


def test_what_a_silent_target_said_last_is_no_reason_to_let_the_original_go() -> None:
    """Its link may still be there: the last list stands, and nobody knows whether it is true."""
    fleet = draining()
    until_ready(fleet)
    fleet.pass_time(fleet.world.soak_s)
    world = with_node(fleet.look(), "gpu-1", state=NodeState.SUSPECT)
    (changed,) = reconcile(world).records
    assert changed.assignment is not None
    assert changed.assignment.stopping == ""


def test_a_silent_source_keeps_its_drain_from_ending() -> None:
    fleet = draining()
    until_leaving(fleet)
    fleet.cut("gpu-0")
    fleet.pass_time(30.0)
    decision = pass_of(fleet)
    found = status(fleet, "gpu-0", decision)
    assert found.state is DrainState.DRAINING
    assert found.left == {"m/1": "the original stops: replaced, since gpu-0 drains"}
    fleet.heal("gpu-0")
    assert status(fleet, "gpu-0", rest(fleet)).state is DrainState.DRAINED


def test_a_command_that_an_engine_refused_is_not_given_to_it_again() -> None:
    fleet = draining()
    for node in ("gpu-1", "gpu-2"):
        fleet.nodes[node].refuses |= {original(fleet).launch.offer.key}
    rest(fleet)
    fleet.drain("gpu-0")
    decision = pass_of(fleet)
    assert goal(fleet) == ()
    assert "gpu-1 refused its command" in decision.blocked["m/1"]


def test_who_takes_over_after_a_long_stop_of_its_original_has_a_clean_slate_at_once() -> None:
    fleet = draining()
    until_leaving(fleet)
    fleet.world = evolve(fleet.world, records={"m/1": evolve(record(fleet), failures=3)})
    fleet.pass_time(STABLE_S)
    rest(fleet)
    assert (home(fleet), record(fleet).failures) == (("gpu-1",), 0)


def test_a_control_plane_that_starts_anew_goes_on_where_it_was() -> None:
    """Records and what is seen are all there is: an equal world, read again, gives the same decision."""
    fleet = draining()
    for reach in (pass_of, step, until_ready, until_leaving):
        reach(fleet)
        read_again = evolve(fleet.look(), records={name: evolve(each) for name, each in fleet.world.records.items()})
        assert reconcile(read_again) == reconcile(fleet.look())
        silent = {name: evolve(n, state=NodeState.WAITING, shards=None) for name, n in read_again.nodes.items()}
        assert [
            each.id for each in reconcile(evolve(read_again, nodes=silent)).records if each.assignment is None
        ] == []
    come_to_rest(fleet)
    assert home(fleet) == ("gpu-1",)

"""A changed profile goes through a model's replicas, each replaced before it goes.

| in mid-roll-out                    | outcome                                                                      |
|------------------------------------|------------------------------------------------------------------------------|
| a replacement fails                | the roll-out stops there: its original and all others stay as they are        |
| it is asked for again, or applied  | what failed is tried anew                                                    |
| the change is taken back           | the replacement goes, the original stays; who was changed is changed back    |
| the change is changed              | a replacement of the old kind goes, one of the new kind comes                |
| the node drains                    | what moves goes on: its replacement serves the drain just as well            |
| there is no room                   | all stay as they are, with the reason; it goes on by itself when there is    |
"""

import pytest

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, Place
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.rollout import find_served
from llmgw_core.testing.law import pass_of, rest, serving
from llmgw_core.testing.light_fleet import LightFleet
from llmgw_core.testing.made_world import a_profile
from llmgw_core.testing.moving_fleet import (
    add_nodes,
    apply,
    change,
    crash,
    flap,
    goal,
    home,
    moving,
    original,
    replacement,
    settled,
    step,
    until,
    until_leaving,
    until_ready,
)


def outdated(fleet: LightFleet) -> list[str]:
    keys = {offer.key for offer in fleet.world.offers.values()}
    return [
        each.id
        for each in fleet.world.records.values()
        if each.assignment is not None and each.assignment.launch.offer.key not in keys
    ]


def catalog_of(fleet: LightFleet) -> Catalog:
    assert fleet.world.catalog is not None
    return fleet.world.catalog


def test_a_change_goes_through_the_replicas_one_by_one_each_replaced_before_it_goes() -> None:
    fleet = settled(replicas=3, extra=1)
    change(fleet, "m")
    for done in range(1, 4):
        assert outdated(fleet) == [f"m/{n}" for n in range(done, 4)]
        until_leaving(fleet, f"m/{done}")
        assert moving(fleet) == [f"m/{done}"]
        assert serving(fleet)["m"] == 3
        while goal(fleet, f"m/{done}"):
            step(fleet)
    assert outdated(fleet) == []
    assert rest(fleet).blocked == {}


def test_models_change_side_by_side() -> None:
    fleet = settled({"a": a_profile(1, 2), "b": a_profile(1, 2)}, replicas=2)
    change(fleet, "a", "b")
    pass_of(fleet)
    assert moving(fleet) == ["a/1", "b/1"]


def test_a_replacement_may_stand_beside_its_original() -> None:
    fleet = settled({"m": a_profile(1, 4)}, nodes=1)
    change(fleet, "m")
    until_leaving(fleet)
    assert (home(fleet), goal(fleet)) == (("gpu-0",), ("gpu-0",))
    rest(fleet)
    assert outdated(fleet) == []


def halted() -> LightFleet:
    """m/1 is changed, the replacement of m/2 has failed."""
    fleet = settled(replicas=3, extra=1)
    change(fleet, "m")
    until(fleet, lambda: goal(fleet, "m/2"))
    step(fleet)
    crash(fleet, replacement(fleet, "m/2"), kind="out of memory")
    return fleet


def test_replicas_of_one_model_stand_apart_after_a_roll_out_too() -> None:
    """Else the loss of one node, which cost one replica before, takes the model down."""
    fleet = settled({"m": a_profile(1, 4)}, nodes=3, replicas=3)
    for _ in range(3):
        change(fleet, "m")
        rest(fleet)
        assert not outdated(fleet)
        assert {home(fleet, f"m/{n}") for n in (1, 2, 3)} == {("gpu-0",), ("gpu-1",), ("gpu-2",)}


def test_a_roll_out_stops_at_the_first_replacement_that_fails() -> None:
    fleet = halted()
    decision = rest(fleet)
    assert outdated(fleet) == ["m/2", "m/3"]
    assert serving(fleet)["m"] == 3
    why = (
        f"the replacement of m/2 failed on {home(fleet, 'm/1')[0].replace('gpu-3', 'gpu-0')}: out of memory; "
        "`llmgw ctl rollout m --retry` tries again, `llmgw ctl rollback m` goes back"
    )
    assert decision.blocked == {"m/2": why, "m/3": why}
    assert decision.look_again_at is None


def test_a_roll_out_that_is_asked_for_again_tries_anew_what_failed() -> None:
    fleet = halted()
    rest(fleet)
    fleet.ask_again("m")
    pass_of(fleet)
    assert moving(fleet) == ["m/2"]
    rest(fleet)
    assert outdated(fleet) == []


def test_a_catalog_that_is_applied_again_tries_anew_what_failed() -> None:
    fleet = halted()
    rest(fleet)
    fleet.pass_time(1.0)
    apply(fleet, catalog_of(fleet))
    rest(fleet)
    assert outdated(fleet) == []


def test_a_drain_does_not_set_a_roll_out_going_that_has_stopped() -> None:
    fleet = halted()
    rest(fleet)
    fleet.drain(home(fleet, "m/2")[0])
    until(fleet, lambda: goal(fleet, "m/2"))
    step(fleet)
    crash(fleet, replacement(fleet, "m/2"))
    decision = rest(fleet)
    assert outdated(fleet) == ["m/2", "m/3"]
    assert "the replacement of m/2 failed" in decision.blocked["m/3"]


def test_a_change_that_is_taken_back_takes_the_replacement_back_too() -> None:
    fleet = settled(replicas=2, extra=1)
    before = catalog_of(fleet)
    change(fleet, "m")
    until_ready(fleet)
    apply(fleet, before)
    rest(fleet)
    assert [original(fleet, name).launch.generation for name in ("m/1", "m/2")] == [1, 1]
    assert (outdated(fleet), moving(fleet)) == ([], [])


def test_going_back_after_a_failure_changes_back_who_was_changed_and_no_other() -> None:
    fleet = settled(replicas=3, extra=1)
    before = catalog_of(fleet)
    change(fleet, "m")
    until(fleet, lambda: goal(fleet, "m/2"))
    step(fleet)
    crash(fleet, replacement(fleet, "m/2"))
    rest(fleet)
    apply(fleet, before)
    rest(fleet)
    assert outdated(fleet) == []
    assert [original(fleet, f"m/{n}").launch.generation for n in (1, 2, 3)] == [3, 1, 1]


def test_a_change_of_a_change_replaces_a_replacement_of_the_old_kind() -> None:
    for reach in (step, until_ready):
        fleet = settled(replicas=2, extra=1)
        change(fleet, "m")
        reach(fleet)
        change(fleet, "m")
        decision = pass_of(fleet)
        assert [each.kind for each in decision.happenings] == ["replacement called off"]
        rest(fleet)
        assert outdated(fleet) == []


def test_a_drain_in_mid_roll_out_goes_on_with_the_replacement_that_comes() -> None:
    fleet = settled(replicas=2, extra=1)
    change(fleet, "m")
    until_ready(fleet)
    coming = replacement(fleet).launch
    fleet.drain(home(fleet)[0])
    rest(fleet)
    assert original(fleet).launch == coming


def test_without_room_all_stay_as_they_are_and_it_goes_on_by_itself_when_there_is_some() -> None:
    fleet = settled(replicas=3)
    change(fleet, "m")
    decision = rest(fleet)
    assert (outdated(fleet), serving(fleet)["m"]) == (["m/1", "m/2", "m/3"], 3)
    assert decision.blocked["m/1"] == (
        "no room for its replacement: needs 8 free GPUs on one node; gpu-0 has no free GPUs of 8, gpu-1 has no free "
        "GPUs of 8, gpu-2 has no free GPUs of 8; make room, or let it stop first with --allow-stop-first"
    )
    add_nodes(fleet, 1)
    rest(fleet)
    assert outdated(fleet) == []


def test_who_may_stop_first_is_changed_in_its_own_place_one_after_the_other() -> None:
    fleet = settled(replicas=3)
    change(fleet, "m")
    fleet.ask_again("m", stop_first=True)
    pass_of(fleet)
    assert [original(fleet, f"m/{n}").stopping != "" for n in (1, 2, 3)] == [True, False, False]
    least = 3
    while outdated(fleet) or serving(fleet)["m"] < 3:
        step(fleet)
        least = min(least, serving(fleet)["m"])
    assert least == 2


def test_nobody_stops_first_while_another_one_is_not_ready() -> None:
    fleet = settled(replicas=3)
    change(fleet, "m")
    flap(fleet, original(fleet, "m/3"))
    fleet.ask_again("m", stop_first=True)
    decision = pass_of(fleet)
    assert decision.blocked["m/1"].endswith("; it may stop first, but not while m/3 is not ready")
    assert [original(fleet, f"m/{n}").stopping != "" for n in (1, 2, 3)] == [False, False, True], "that costs nothing"


def test_a_replacement_that_took_over_before_it_was_ready_gives_way_to_a_newer_change() -> None:
    fleet = settled(replicas=1, extra=2)
    change(fleet, "m")
    step(fleet)
    crash(fleet, original(fleet))
    pass_of(fleet)
    change(fleet, "m")
    rest(fleet)
    assert (outdated(fleet), serving(fleet)["m"]) == ([], 1)
    assert reconcile(fleet.look()).records == ()


# What a roll-back goes back to.

OLD, NEW = (Offer(key, "m", "/m", "p", a_profile(1, 1)) for key in ("old", "new"))


@pytest.mark.parametrize(
    ("ready_at", "then", "expected"),
    [
        (1.0, {("m", "p"): NEW}, {"m": (OLD,)}),
        (None, {("m", "p"): NEW}, {}),  # it never served
        (1.0, {("m", "p"): OLD}, {}),  # nothing changes
        (1.0, {}, {}),  # the model goes
        (1.0, {("n", "p"): NEW}, {}),
    ],
)
def test_what_served_before_a_change_is_the_way_back(
    ready_at: float | None, then: dict[tuple[str, str], Offer], expected: dict[str, tuple[Offer, ...]]
) -> None:
    launch = Launch("m/1", 1, OLD, (Place("gpu-0", "192.0.2.1", 18000),))
    record = ReplicaRecord("m/1", "m", 1, Assignment(launch, 0.0, ready_at=ready_at))
    assert find_served([record], {("m", "p"): OLD}, then) == expected

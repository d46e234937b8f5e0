"""Where there is no room for both, an original may stop before its replacement starts, if the operator allows it.

Only where its going makes room for it; that room is kept for it; and never while another replica of the model is not
ready. What is changed in its own place is in `test_rollout`.
"""

from llmgw_core.testing.law import pass_of, rest, serving
from llmgw_core.testing.made_world import a_profile
from llmgw_core.testing.moving_fleet import add_nodes, home, original, record, scale, settled, step


def test_a_group_may_use_again_what_only_its_original_held_if_it_may_stop_first() -> None:
    fleet = settled({"m": a_profile(2, 8)}, nodes=3)
    fleet.drain("gpu-1")
    decision = rest(fleet)
    assert home(fleet) == ("gpu-0", "gpu-1")
    assert "needs 2 nodes with 8 free GPUs on one fabric; ib-a has 1" in decision.blocked["m/1"]
    fleet.drain("gpu-1", stop_first=True)
    decision = pass_of(fleet)
    assert original(fleet).stopping == "gpu-1 drains, and it may stop first"
    rest(fleet)
    assert sorted(home(fleet)) == ["gpu-0", "gpu-2"]
    assert record(fleet).move is None


def test_who_may_stop_first_does_not_where_that_makes_no_room() -> None:
    fleet = settled(nodes=2, replicas=2)
    fleet.drain("gpu-0", stop_first=True)
    decision = rest(fleet)
    assert (home(fleet), serving(fleet)["m"]) == (("gpu-0",), 2)
    assert decision.blocked["m/1"].endswith("; nor would there be if it stopped first")


def test_the_place_of_who_stops_first_is_kept_from_those_who_only_wait() -> None:
    fleet = settled({"m": a_profile(2, 8)}, nodes=3)
    assert fleet.world.catalog is not None
    fleet.drain("gpu-1", stop_first=True)
    pass_of(fleet)
    assert original(fleet).stopping
    scale(fleet, "m", 2)
    other = fleet.world.records["m/1"]
    for _ in range(3):
        pass_of(fleet)
        assert fleet.world.records["m/1"] == other
    decision = rest(fleet)
    assert sorted(home(fleet)) == ["gpu-0", "gpu-2"]
    assert "m/2" in decision.unplaced


def test_two_of_a_model_are_never_down_because_they_may_stop_first() -> None:
    fleet = settled({"m": a_profile(2, 4)}, nodes=2, replicas=2)
    add_nodes(fleet, 1, gpus=4)
    fleet.drain("gpu-1", stop_first=True)
    least = 2
    for _ in range(60):
        step(fleet)
        least = min(least, serving(fleet)["m"])
    assert least >= 1

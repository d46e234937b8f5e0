"""What a sleep of the control plane, or a step of its clock, means for its nodes (F09)."""

from __future__ import annotations

import pytest

from llmgw_core.control.fleet import Fleet, Node
from llmgw_core.plan.liveness import NodeState, Sleep
from llmgw_core.store.reading import StoredNode


def a_fleet(last_heard: float) -> tuple[Fleet, Node]:
    fleet = Fleet(started=0.0)
    node = Node("gpu1", "", "", 1e9, "", "", 1, None, 0.0, last_heard)
    node.connection = object()  # type: ignore[assignment]
    fleet.nodes["gpu1"] = node
    fleet.look(last_heard)
    fleet.sleeps.clear()
    return fleet, node


def test_a_sleep_that_nobody_has_noticed_yet_makes_no_node_silent() -> None:
    fleet, node = a_fleet(1000.0)
    assert fleet.state(node, 1300.0) is NodeState.ONLINE
    assert fleet.patience_s(node.last_heard, 1300.0) > 0


def test_a_node_that_stays_silent_after_a_sleep_is_suspect_and_lost_as_late_as_without_it() -> None:
    fleet, node = a_fleet(1000.0)
    assert fleet.look(1301.0) == Sleep(1301.0, 300.0)
    for now in range(1302, 1380):
        assert fleet.look(float(now)) is None
        silent_s = now - 1300
        expected = NodeState.ONLINE if silent_s <= 10 else NodeState.SUSPECT if silent_s <= 60 else NodeState.LOST
        assert fleet.state(node, float(now)) is expected, now


def test_a_node_that_is_lost_stays_lost_through_a_sleep() -> None:
    fleet, node = a_fleet(1000.0)
    node.connection = None
    for now in range(1001, 1100):
        fleet.look(float(now))
    assert fleet.state(node, 1099.0) is NodeState.LOST
    fleet.look(2000.0)
    assert fleet.state(node, 2000.0) is NodeState.LOST


def test_a_clock_set_back_by_an_hour_hides_no_dead_node() -> None:
    fleet, node = a_fleet(10_000.0)
    fleet.look(6400.0)
    for now in range(6401, 6470):
        fleet.look(float(now))
    assert fleet.state(node, 6469.0) is NodeState.LOST


def stored(facts: str | None, last_seen: float = 0.0) -> StoredNode:
    return StoredNode("gpu1", "", "", 1e9, "", "i1", 7, facts, 0.0, last_seen)


@pytest.mark.parametrize("facts", ["{}", "[]", "", "null", '{"gpus":1}', "[" * 100_000])
def test_facts_that_nobody_can_read_cost_their_node_its_facts_and_nothing_else(facts: str) -> None:
    fleet = Fleet(started=100.0)
    fleet.load([stored(facts)], [])
    assert fleet.nodes["gpu1"].facts is None
    assert fleet.nodes["gpu1"].report_number == 0


def test_a_node_that_was_seen_in_the_future_was_seen_by_a_clock_that_was_wrong() -> None:
    fleet = Fleet(started=100.0)
    fleet.load([stored(None, last_seen=4000.0)], [])
    assert fleet.nodes["gpu1"].last_heard == 100.0

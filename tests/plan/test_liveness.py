"""How a node is, by when it was last heard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.plan.liveness import (
    FLEET_BEATS_PER_S,
    HEARTBEAT_S,
    LOST_AFTER_S,
    NodeState,
    heard_at_least,
    heartbeat_interval_s,
    is_silent,
    node_state,
)

STARTED = 1000.0
TIMES = st.floats(0, 10_000)


@pytest.mark.parametrize(
    ("connected", "last_heard", "now", "expected"),
    [
        (True, 5000, 5000, NodeState.ONLINE),
        (True, 5000, 5010, NodeState.ONLINE),
        (True, 5000, 5010.1, NodeState.SUSPECT),
        (True, 5000, 5060, NodeState.SUSPECT),
        (True, 5000, 5060.1, NodeState.LOST),
        (False, 5000, 5000, NodeState.SUSPECT),
        (False, 5000, 5060, NodeState.SUSPECT),
        (False, 5000, 5060.1, NodeState.LOST),
        # known from before the start: nobody is lost before the grace is over
        (False, 10, 1000, NodeState.WAITING),
        (False, 10, 1059.9, NodeState.WAITING),
        (False, 10, 1060, NodeState.LOST),
        (False, 999, 1060, NodeState.LOST),
        (True, 10, 1000, NodeState.WAITING),
        # back after the start
        (True, 1001, 1002, NodeState.ONLINE),
        (False, 1001, 1002, NodeState.SUSPECT),
    ],
)
def test_the_state(connected: bool, last_heard: float, now: float, expected: NodeState) -> None:
    state = node_state(connected=connected, last_heard=last_heard, started=STARTED, now=now, interval_s=5.0)
    assert state is expected


@pytest.mark.parametrize(("nodes", "interval_s"), [(0, 5), (1, 5), (250, 5), (251, 5.02), (1000, 20)])
def test_the_interval_is_stretched_for_a_large_fleet(nodes: int, interval_s: float) -> None:
    assert heartbeat_interval_s(nodes) == pytest.approx(interval_s)


@given(st.integers(1, 100_000))
def test_a_fleet_never_sends_more_than_its_beats(nodes: int) -> None:
    assert nodes / heartbeat_interval_s(nodes) <= FLEET_BEATS_PER_S * (1 + 1e-9)
    assert heartbeat_interval_s(nodes) >= HEARTBEAT_S


@given(TIMES, TIMES, st.booleans(), st.floats(0, 1000))
def test_time_alone_only_makes_it_worse_once_the_grace_is_over(
    last_heard: float, now: float, connected: bool, later: float
) -> None:
    order = [NodeState.ONLINE, NodeState.SUSPECT, NodeState.LOST]
    now = max(now, STARTED + 60, last_heard)
    first, second = (
        node_state(connected=connected, last_heard=last_heard, started=STARTED, now=at, interval_s=5.0)
        for at in (now, now + later)
    )
    assert order.index(first) <= order.index(second)


@given(TIMES, TIMES, st.booleans())
def test_whoever_was_heard_within_the_time_is_not_lost(last_heard: float, now: float, connected: bool) -> None:
    state = node_state(connected=connected, last_heard=last_heard, started=0, now=now, interval_s=5.0, grace_s=0)
    assert (state is NodeState.LOST) == (now - last_heard > LOST_AFTER_S)


@pytest.mark.parametrize(("since_s", "expected"), [(1.0, 100), (1.4, 100), (2.9, 100), (3.1, 102.1), (61, 160)])
def test_f09_what_the_control_plane_slept_does_not_count_against_a_node(since_s: float, expected: float) -> None:
    assert heard_at_least(100, since_s, 1.0, now=10_000) == pytest.approx(expected)


def test_f09_sleeping_hears_nobody_in_the_future() -> None:
    assert heard_at_least(100, 61, 1.0, now=130) == 130


@given(TIMES, st.floats(0, 100), TIMES)
def test_sleeping_never_makes_a_node_older(last_heard: float, since_s: float, now: float) -> None:
    assert last_heard <= heard_at_least(last_heard, since_s, 1.0, now=max(now, last_heard))
    assert not is_silent(heard_at_least(now, since_s, 1.0, now=now), now, 5.0)

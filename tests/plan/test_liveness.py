"""How a node is, by when it was last heard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.plan.liveness import (
    FLEET_BEATS_PER_S,
    HEARTBEAT_S,
    LOST_AFTER_S,
    SLEEP_S,
    BadPace,
    NodeState,
    Pace,
    Sleep,
    find_sleep,
    heartbeat_interval_s,
    node_state,
    slept_since,
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
    state = node_state(connected=connected, last_heard=last_heard, started=0, now=now, interval_s=5.0)
    assert (state is NodeState.LOST) == (now - last_heard > LOST_AFTER_S)


@pytest.mark.parametrize(
    ("heartbeat_s", "lost_after_s", "good"),
    [(5, 60, True), (0.1, 0.3, True), (5, 10, False), (30, 60, False), (0, 60, False), (-1, 60, False), (5, 0, False)],
)
def test_a_pace_leaves_room_between_suspect_and_lost(heartbeat_s: float, lost_after_s: float, good: bool) -> None:
    if good:
        assert Pace(heartbeat_s, lost_after_s).lost_after_s == lost_after_s
    else:
        with pytest.raises(BadPace, match="suspect only after 2 missed heartbeats"):
            Pace(heartbeat_s, lost_after_s)


@pytest.mark.parametrize(
    ("now", "slept_s"), [(101, None), (101.9, None), (102, None), (102.5, 1.5), (161, 60), (100, None), (40, None)]
)
def test_f09_a_look_that_is_late_is_a_sleep_and_a_clock_set_back_is_none(now: float, slept_s: float | None) -> None:
    assert find_sleep(100, now, 1) == (None if slept_s is None else Sleep(now, slept_s))


@pytest.mark.parametrize(("last_heard", "excused_s"), [(10, 36), (50, 36), (100, 6), (150, 6), (200, 0), (300, 0)])
def test_f09_a_node_is_excused_for_what_was_slept_since_it_was_heard(last_heard: float, excused_s: float) -> None:
    assert slept_since(last_heard, [Sleep(100, 30), Sleep(200, 6)]) == excused_s


@given(TIMES, st.floats(0, 1000), st.floats(0, 10))
def test_f09_a_sleep_alone_makes_nobody_silent(looked: float, slept_s: float, since_s: float) -> None:
    """Heard within its time before the sleep, it is heard within its time after."""
    last_heard, now = looked - since_s, looked + 1 + slept_s
    sleep = find_sleep(looked, now, 1)
    excused = slept_since(last_heard, [sleep]) if sleep is not None else 0
    assert now - excused - last_heard <= since_s + 1 + SLEEP_S + 1e-6

"""When to call again: full jitter in a window that doubles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.plan.backoff import FIRST_S, MOST_S, RESET_AFTER_S, delay_s, failures_after

FAILURES = st.integers(1, 10_000)
FRACTIONS = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("failures", "window_s"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (99, 30)])
def test_the_window_doubles_to_its_most(failures: int, window_s: float) -> None:
    assert delay_s(failures, 0.5) == window_s / 2


@pytest.mark.parametrize(
    ("failures", "connected_s", "expected"), [(0, 0, 1), (1, 0, 2), (5, 59.9, 6), (5, 60, 1), (5, 3600, 1), (0, 60, 1)]
)
def test_a_connection_that_held_is_a_new_beginning(failures: int, connected_s: float, expected: int) -> None:
    assert failures_after(failures, connected_s) == expected


@given(FAILURES, FRACTIONS)
def test_it_is_somewhere_in_the_window(failures: int, fraction: float) -> None:
    assert 0 <= delay_s(failures, fraction) < MOST_S


@given(FAILURES, FRACTIONS, FRACTIONS)
def test_a_later_fraction_waits_longer_and_more_failures_never_shorten(failures: int, one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert delay_s(failures, low) <= delay_s(failures, high)
    assert delay_s(failures, one) <= delay_s(failures + 1, one)


@given(st.lists(st.floats(0, 2 * RESET_AFTER_S), min_size=1))
def test_after_any_history_there_is_a_delay(held: list[float]) -> None:
    failures = 0
    for connected_s in held:
        failures = failures_after(failures, connected_s)
    assert failures >= 1
    assert delay_s(failures, 0.999) >= FIRST_S * 0.999

"""What a user is told when nothing of a model takes requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.model.route import Absent, ModelRoute
from llmgw_core.plan.route_words import MOST_CHARACTERS, how_long, why_none_is_ready

NOW = 1_700_000_000.0
LOADING = Absent("qwen3/1", "starting", "loading", NOW - 40)
UNPLACED = Absent("qwen3/2", "unplaced", "needs 8 GPUs, 4 free")


def said(*absent: Absent) -> str:
    return why_none_is_ready(ModelRoute("qwen3", absent=absent), NOW)


def test_each_state_is_counted_with_its_reason_and_how_long_it_has_been_so() -> None:
    told = "no replica of qwen3 is ready: 1 starting (loading for 40 s), 1 unplaced (needs 8 GPUs, 4 free)"
    assert said(LOADING, UNPLACED) == told
    assert said(UNPLACED, LOADING) == told, "in whichever order they are listed"


def test_replicas_that_are_alike_are_one_number_and_the_longest_time() -> None:
    later = Absent("qwen3/3", "starting", "loading", NOW - 5)
    assert said(later, LOADING) == "no replica of qwen3 is ready: 2 starting (loading for 40 s)"


def test_a_model_of_which_nothing_is_wanted_says_so() -> None:
    assert said() == "no replica of qwen3 is ready: none is wanted"


@pytest.mark.parametrize(
    ("absent", "note"),
    [
        (Absent("m/1", "pending"), "1 pending"),
        (Absent("m/1", "failed", "", NOW - 9), "1 failed (for 9 s)"),
        (Absent("m/1", "unready", "", NOW + 9), "1 unready (for 0 s)"),
    ],
)
def test_what_is_not_known_is_not_said(absent: Absent, note: str) -> None:
    assert said(absent) == f"no replica of qwen3 is ready: {note}"


def test_many_different_absences_are_named_in_part() -> None:
    many = [Absent(f"m/{n}", "failed", f"reason {n}") for n in range(9)]
    assert said(*many).endswith("1 failed (reason 3), 5 others")


@pytest.mark.parametrize(
    ("seconds", "words"), [(-3, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (2e5, "2 d")]
)
def test_a_time_is_told_in_the_largest_unit_of_which_there_are_two(seconds: float, words: str) -> None:
    assert how_long(seconds) == words


@given(st.lists(st.builds(Absent, st.text(), st.text(), st.text(max_size=300), st.none() | st.floats(0, 2e9))))
def test_whatever_is_absent_it_is_one_short_sentence(absent: list[Absent]) -> None:
    assert len(said(*absent)) <= MOST_CHARACTERS

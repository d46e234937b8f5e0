from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import Flag, FlagTable
from llmgw_core.plan.cut import maybe_lost


def table(letters: str, *cuts: str) -> FlagTable:
    return FlagTable(tuple(Flag((f"--{letter}",)) for letter in letters), cuts)


def test_in_a_whole_text_nothing_is_lost() -> None:
    assert maybe_lost({"--b"}, table("ac"), [table("abc")]) == frozenset()


def test_a_flag_between_two_documented_neighbours_is_really_gone() -> None:
    assert maybe_lost({"--b"}, table("ac", "cut"), [table("abc")]) == frozenset()


def test_a_run_of_missing_flags_up_to_the_end_may_be_lost() -> None:
    assert maybe_lost({"--c", "--d"}, table("ab", "cut"), [table("abcd")]) == {"--c", "--d"}


def test_the_last_and_the_first_flag_of_the_order_may_be_lost() -> None:
    assert maybe_lost({"--a", "--c"}, table("b", "cut"), [table("abc")]) == {"--a", "--c"}


def test_one_order_that_puts_it_elsewhere_is_a_doubt() -> None:
    assert maybe_lost({"--b"}, table("ac", "cut"), [table("abc"), table("acb")]) == {"--b"}


def test_a_flag_that_no_order_knows_may_be_lost() -> None:
    assert maybe_lost({"--new"}, table("ac", "cut"), [table("abc")]) == {"--new"}


@given(st.permutations("abcdefgh"), st.integers(0, 8), st.booleans())
def test_no_flag_is_called_gone_that_the_whole_text_has(order: list[str], at: int, end: bool) -> None:
    kept = order[:at] if end else order[at:]
    missing = {f"--{letter}" for letter in order if letter not in kept}
    assert maybe_lost(missing, table("".join(kept), "cut"), [table("".join(order))]) == missing

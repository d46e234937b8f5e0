import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import Flag, FlagState, FlagTable
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


def test_without_a_sign_a_run_that_the_most_similar_order_has_is_a_hole() -> None:
    orders = [table("abxyef"), table("abcdef")]
    assert maybe_lost({"--c", "--d"}, table("abef"), orders[1:]) == {"--c", "--d"}
    assert maybe_lost({"--c"}, table("abdef"), orders) == frozenset()
    assert maybe_lost({"--c", "--d"}, table("abxyef"), orders) == frozenset()


def test_a_text_of_an_unknown_version_has_a_hole_only_where_both_of_its_kin_have_the_run() -> None:
    older, newer = table("abcdfgh"), table("abcdefghijk")
    unknown = "abfgz"
    assert maybe_lost({"--c", "--d"}, table(unknown), [older, newer]) == {"--c", "--d"}
    assert maybe_lost({"--i", "--j"}, table(unknown), [older, newer]) == frozenset()


def test_a_run_that_is_listed_as_removed_may_go() -> None:
    order = FlagTable(tuple(evolve(flag, state=FlagState.REMOVED) for flag in table("abcd").flags))
    assert maybe_lost({"--b", "--c"}, table("ad"), [order]) == frozenset()


def test_a_text_that_names_its_options_twice_has_no_unseen_hole() -> None:
    assert maybe_lost({"--b", "--c"}, evolve(table("ad"), counted=True), [table("abcd")]) == frozenset()


@pytest.mark.parametrize("cuts", [(), ("cut",)])
def test_options_that_are_only_named_prove_nothing(cuts: tuple[str, ...]) -> None:
    order = FlagTable((Flag(("--a",)), Flag(("--b", "--bee")), Flag(("--c",))))
    unstated = [Flag((name,), state=FlagState.UNSTATED) for name in ("--a", "--b", "--c")]
    assert maybe_lost({"--bee"}, FlagTable(tuple(unstated), cuts), [order]) == {"--bee"}
    # Its neighbours are defined, and it stands elsewhere in this version.
    moved = FlagTable((order.flags[0], order.flags[2], unstated[1]), cuts)
    assert maybe_lost({"--bee"}, moved, [order]) == {"--bee"}


def test_a_doubtful_neighbour_proves_nothing() -> None:
    doubtful = FlagTable((*table("a").flags, Flag(("--c",), doubt="cut")), ("cut",))
    assert maybe_lost({"--b"}, doubtful, [table("abc")]) == {"--b"}


@given(st.permutations("abcdefgh"), st.integers(0, 8), st.booleans())
def test_no_flag_is_called_gone_that_the_whole_text_has(order: list[str], at: int, end: bool) -> None:
    kept = order[:at] if end else order[at:]
    missing = {f"--{letter}" for letter in order if letter not in kept}
    assert maybe_lost(missing, table("".join(kept), "cut"), [table("".join(order))]) == missing

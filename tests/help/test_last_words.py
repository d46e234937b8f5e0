from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import FailureKind
from llmgw_core.help.last_words import find_cause, last_error, log_lines, parser_error

_SIGNS = ((FailureKind.OUT_OF_MEMORY, re.compile("out of memory")), (FailureKind.PEER_LOST, re.compile("peer")))


def test_the_first_sign_wins_whatever_stands_last() -> None:
    lines = ["1 out of memory", "2 out of memory", "the peer is gone"]
    assert find_cause(lines, _SIGNS) == (FailureKind.OUT_OF_MEMORY, "2 out of memory")


def test_the_parsers_line_is_found_between_usage_and_a_hint() -> None:
    lines = log_lines("usage: e [-h]\n   [--x X]\ne: error: unrecognized arguments: --y\nhint: see the manual\n")
    assert parser_error(lines) == "e: error: unrecognized arguments: --y"


def test_the_last_error_is_not_the_first_line_and_not_a_pointer_to_it() -> None:
    lines = ["WARNING: no GPU", "ValueError: bad", "RuntimeError: see above", "INFO bye"]
    assert last_error(lines, re.compile("see above")) == "ValueError: bad"
    assert last_error(["RuntimeError: see above", "bye"], re.compile("see above")) == "RuntimeError: see above"
    assert last_error(["loading", "bye"]) == "bye"
    assert last_error([]) is None


@given(st.text())
def test_lines_are_one_line_each(log: str) -> None:
    assert all(line == line.strip() and "\n" not in line for line in log_lines(log))

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import ONE, SWITCH, Arity, Flag, FlagState, FlagTable, NotCompleteHelp
from llmgw_core.help.argparse_text import Program, read_argparse_help
from llmgw_core.testing.recorded import cut_between_lines, recorded_help, recorded_helps

PROGRAM = Program("engine --help", ways_out=(("no device", "run it on another node"),))
TAILED = Program("engine --help", epilogue=("Tip: ", "When passing JSON "))
MANY, ANY, MAYBE = Arity(1, None), Arity(0, None), Arity(0, 1)

WHOLE = """\
INFO 01-01 [log.py:1] --not-a-flag was seen
usage: engine serve [-h] --model MODEL [--port PORT]
                    [--eager | --no-eager]

Serves. See --help=all and --prose.

options:
  -h, --help            show it
  --model MODEL         What to serve; --in-prose is none.
  --port PORT           Where.
                        --at-the-beginning-of-a-line is none.
                        - --nor-a-bullet
  --eager, --no-eager   Whether.
"""


def read(text: str, program: Program = PROGRAM) -> FlagTable:
    return read_argparse_help(text, program)


def option(header: str, *description: str) -> Flag:
    """The one option of a text that has this header and description."""
    lines = "\n".join(f"                        {line}" for line in description)
    table = read(f"usage: engine [options]\n\noptions:\n  -h, --help  show it\n  {header}\n{lines}\n")
    return table.flags[1]


def test_only_definitions_are_flags() -> None:
    table = read(WHOLE)
    assert table.names == ("-h", "--help", "--model", "--port", "--eager", "--no-eager")
    assert not table.cuts
    assert all(flag.state is FlagState.LIVE for flag in table.flags)


@pytest.mark.parametrize(
    ("header", "names", "arity", "choices", "is_open"),
    [
        ("--x", ("--x",), SWITCH, (), False),
        ("--x X, -s X", ("--x", "-s"), ONE, (), False),
        ("--x, -s X", ("--x", "-s"), ONE, (), False),
        ("--x, --no-x, -ep", ("--x", "--no-x", "-ep"), SWITCH, (), False),
        ("--x {a,b}", ("--x",), ONE, ("a", "b"), False),
        ("--x {auto,rs+rsv,1,None}", ("--x",), ONE, ("auto", "rs+rsv", "1", "None"), False),
        ("--x {a,b}, -s {a,b}", ("--x", "-s"), ONE, ("a", "b"), False),
        ("--x {a,b} or name registered in --plugin", ("--x",), ONE, ("a", "b"), True),
        ("--x ['mp', 'ray']", ("--x",), ONE, ("mp", "ray"), True),
        ("--x X [X ...]", ("--x",), MANY, (), False),
        ("--x [X ...]", ("--x",), ANY, (), False),
        ("--x [X]", ("--x",), MAYBE, (), False),
        ("--x {a,b} [{a,b} ...]", ("--x",), MANY, ("a", "b"), False),
        ("--x [{a,b} ...]", ("--x",), ANY, ("a", "b"), False),
        ("--x [{a,b}]", ("--x",), MAYBE, ("a", "b"), False),
        ("--x X X", ("--x",), Arity(2, 2), (), False),
        ("--x <path to it>", ("--x",), ONE, (), False),
        ("--x X  Beside it, with  gaps.", ("--x",), ONE, (), False),
    ],
)
def test_a_header_tells_names_arity_and_choices(
    header: str, names: tuple[str, ...], arity: Arity, choices: tuple[str, ...], is_open: bool
) -> None:
    flag = option(header)
    assert (flag.names, flag.arity, flag.choices, flag.open_choices) == (names, arity, choices, is_open)


def test_what_this_python_prints_is_read_as_it_was_declared() -> None:
    parser = argparse.ArgumentParser(prog="engine", formatter_class=argparse.HelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--several", "-s", nargs="+", help="x")
    parser.add_argument("--any", nargs="*", choices=["a", "b"], help="x")
    parser.add_argument("--maybe", nargs="?", help="x")
    parser.add_argument("--pair", action=argparse.BooleanOptionalAction, help="x")
    parser.add_argument("--two", nargs=2, help="x")
    table = read(parser.format_help())
    assert [flag.arity for flag in table.flags] == [SWITCH, ONE, MANY, ANY, MAYBE, SWITCH, Arity(2, 2)]
    assert table.find("-s") is table.find("--several")
    assert not table.cuts
    stated = {flag.names[0]: flag.arity for flag in table.flags}
    usage = read(parser.format_usage() + "engine: error: no\n")
    assert all(stated["--help" if flag.names == ("-h",) else flag.names[0]] == flag.arity for flag in usage.flags[1:])


@pytest.mark.parametrize(
    ("words", "state", "replaced_by"),
    [
        (("(Deprecated, use --new) Old.",), FlagState.DEPRECATED, ("--new",)),
        (("(Deprecated: use --new-and-", "long=auto) Old."), FlagState.DEPRECATED, ("--new-and-long",)),
        (("[DEPRECATED] It goes away.",), FlagState.DEPRECATED, ()),
        (("[Deprecated] Use --new instead.",), FlagState.DEPRECATED, ("--new",)),
        (("Deprecated. Use --new <n> instead of --older <n> --x.",), FlagState.DEPRECATED, ("--new",)),
        (("Deprecated. Use --new-", "{a,b}=off instead."), FlagState.DEPRECATED, ("--new-a", "--new-b")),
        (("Deprecated alias for --new.",), FlagState.DEPRECATED, ("--new",)),
        (("Deprecated: This option is deprecated.",), FlagState.DEPRECATED, ()),
        (("NOTE: --x is deprecated. Please set `--new` to the value of `--other`.",), FlagState.DEPRECATED, ("--new",)),
        (("Note: --x is deprecated now.",), FlagState.DEPRECATED, ()),
        (("--x is deprecated. Please use '--", "new fast' instead."), FlagState.DEPRECATED, ("--new",)),
        (("Where it runs. This parameter is deprecated and goes.",), FlagState.DEPRECATED, ()),
        (("The `--x` has no effect, leave it.",), FlagState.DEPRECATED, ()),
        (("Removed. Use --new with one of: a, b.",), FlagState.REMOVED, ("--new",)),
        (("This flag is no longer supported.",), FlagState.REMOVED, ()),
        (("Shows deprecated metrics that were hidden.",), FlagState.LIVE, ()),
        (("Allow deprecated methods.",), FlagState.LIVE, ()),
        (("Replaces the deprecated --y.",), FlagState.LIVE, ()),
        (("Note: --y is deprecated.",), FlagState.LIVE, ()),
        (("The value 'old' is deprecated.",), FlagState.LIVE, ()),
        (("The fallback to it is deprecated; ordinary use is not.",), FlagState.LIVE, ()),
        (("What was removed from the cache.",), FlagState.LIVE, ()),
        (("It will be deprecated when y is there.",), FlagState.LIVE, ()),
        (("This option has no effect when y is set.",), FlagState.LIVE, ()),
    ],
)
def test_the_state_is_the_flags_own(words: tuple[str, ...], state: FlagState, replaced_by: tuple[str, ...]) -> None:
    flag = option("--x X", *words)
    assert (flag.state, flag.replaced_by) == (state, replaced_by)
    assert bool(flag.note) == (state is not FlagState.LIVE)
    assert "\n" not in flag.note


def test_what_a_section_says_is_no_flags_state() -> None:
    options = "options:\n  -h, --help  show it\n  --x  A.\n\nOld:\n  This config is deprecated.\n\n  --y  B.\n"
    table = read(f"usage: e [options]\n\n{options}")
    assert [flag.state for flag in table.flags] == [FlagState.LIVE] * 3


def test_colours_and_carriage_returns_are_no_part_of_names() -> None:
    coloured = WHOLE.replace("--port PORT  ", "\x1b[1;36m--port\x1b[0m \x1b[1;33mPORT\x1b[0m  ").replace("\n", "\r\n")
    assert read(coloured) == read(WHOLE)


# usage blocks

USAGE = """\
usage: launch.py [-h] --model MODEL [--format {auto,-pt,--dummy}]
                 [--prefix-caching |
                 --no-prefix-caching] [--list [{a,b} ...]]
                 [--several SEVERAL [SEVERAL ...]] [--maybe [MAYBE]]
                 (--one ONE | --other)
"""


def test_an_argparse_error_is_a_whole_list_of_flags_without_states() -> None:
    table = read(f"{USAGE}launch.py: error: unrecognized arguments: --old\n")
    assert not table.cuts
    assert {flag.state for flag in table.flags} == {FlagState.UNSTATED}
    assert [(flag.names, flag.arity) for flag in table.flags] == [
        (("-h",), SWITCH),
        (("--model",), ONE),
        (("--format",), ONE),
        (("--prefix-caching", "--no-prefix-caching"), SWITCH),
        (("--list",), ANY),
        (("--several",), MANY),
        (("--maybe",), MAYBE),
        (("--one",), ONE),
        (("--other",), SWITCH),
    ]
    assert not table.documents("--old")


def test_options_of_the_usage_block_alone_come_last_and_are_a_sign_of_a_cut() -> None:
    table = read(WHOLE[: WHOLE.index("  --port PORT   ")])
    assert [flag.names[0] for flag in table.flags] == ["-h", "--model", "--port", "--eager"]
    assert [flag.state for flag in table.flags][2:] == [FlagState.UNSTATED] * 2
    assert table.cuts == ("its end is gone: 2 of the 4 options that its usage names are not described",)


@pytest.mark.parametrize("lines", range(1, 6))
def test_a_cut_usage_block_names_no_option_that_it_may_have_broken(lines: int) -> None:
    cut = read("\n".join(USAGE.splitlines()[:lines]) + "\n")
    whole = read(f"{USAGE}launch.py: error: no\n")
    assert cut.cuts
    assert set(cut.flags) <= set(whole.flags)


def test_another_programs_appended_help_is_not_this_ones() -> None:
    other = "\nusage: other [-h] [--port-range P]\n\noptions:\n  -h, --help  show it\n  --port-range P  x\n"
    assert read(WHOLE + other) == read(WHOLE)


# signs of a cut


def test_a_text_without_usage_has_lost_its_beginning() -> None:
    assert read(WHOLE[WHOLE.index("options:") :]).cuts == ("its beginning is gone: there is no usage line",)


EPILOGUE = """\
usage: e [options]

options:
  --x         A.
  -h, --help  show it

More:
  Of it.

  --y         B.

Tip: read on.
"""


BELOW_A_CUT = [
    "", "INFO 01-01 bye", "Killed", "timeout: it dumped core", "Another Section:", "user@gpu01:~$ ", "$ ", "^C", "...",
    "<truncated>", "Broken pipe", "Connection to gpu01 closed.", "LoRA", "Tip", "Tips are gone",
]  # fmt: skip


@pytest.mark.parametrize("end", BELOW_A_CUT)
def test_where_usage_names_nothing_the_epilogue_tells_the_end(end: str) -> None:
    assert not read(EPILOGUE, TAILED).cuts
    assert read(EPILOGUE.replace("Tip: read on.", end), TAILED).cuts
    assert read(EPILOGUE[: EPILOGUE.index("\nMore:")], TAILED).cuts


@pytest.mark.parametrize("end", ["$ ", "^C\n", ""])
def test_what_a_terminal_wrote_below_a_whole_text_changes_nothing(end: str) -> None:
    assert read(EPILOGUE + end, TAILED) == read(EPILOGUE, TAILED)
    assert not read(WHOLE + end).cuts


@pytest.mark.parametrize("end", ["  --eager, --no-eager\n", "  --eager, --no-eager   Use this-or-\n"])
def test_a_text_that_ends_within_an_option_is_cut(end: str) -> None:
    assert read(WHOLE[: WHOLE.index("  --eager, ")] + end).cuts


def test_a_note_that_the_end_broke_names_no_broken_flag() -> None:
    assert option("--x", "Deprecated. Use --new-").replaced_by == ()


# definitions that cannot be trusted


def doubtful(text: str, program: Program = PROGRAM) -> set[str]:
    return {flag.names[0] for flag in read(text, program).flags if flag.doubt}


def test_in_whole_texts_all_definitions_are_trusted() -> None:
    assert doubtful(WHOLE) == doubtful(EPILOGUE, TAILED) == set()


@pytest.mark.parametrize("at", range(WHOLE.index("--port PORT   ") + 3, WHOLE.index("  --eager, --no-eager  ")))
def test_the_option_that_a_cut_text_ends_with_is_in_doubt(at: int) -> None:
    cut = read(WHOLE[:at])
    assert cut.cuts
    assert [flag.names[0] for flag in cut.flags if flag.doubt] == [cut.flags[2].names[0]]


def test_without_the_end_of_its_last_line_the_last_option_is_in_doubt() -> None:
    assert doubtful(WHOLE.rstrip("\n")) == {"--eager"}
    assert doubtful(EPILOGUE[: EPILOGUE.index("\nTip")], TAILED) == {"--y"}
    assert doubtful(EPILOGUE.rstrip("\n"), TAILED) == set()


def test_the_option_that_a_text_begins_with_is_in_doubt() -> None:
    assert "--port" in doubtful(WHOLE[WHOLE.index("  --port PORT  ") :])


FOLDED = EPILOGUE.replace(
    "  --y         B.", "  --why WHY_AND_WHAT_FOR, -y \nWHY_AND_WHAT_FOR\n         B.\n  --z         C."
)
NARROW = """\
usage: e [options]

  --x {one,two,thr
              A.
  --no-x, --no-exe
  -h, --help  it
  --y         B.

Tip: read on.
"""


def test_lines_that_were_broken_anew_or_cut_are_not_trusted() -> None:
    assert doubtful(FOLDED, TAILED) == {"--why"}
    assert read(FOLDED, TAILED).cuts == ("its lines are broken, as by 'WHY_AND_WHAT_FOR'",)
    assert doubtful(NARROW, TAILED) == {"--x", "--no-x"}
    assert read(NARROW, TAILED).cuts == ("its lines are cut at column 18",)
    assert doubtful(EPILOGUE.replace("--x  ", "--x {"), TAILED) == {"--x"}


def test_without_its_blank_lines_a_text_is_as_good() -> None:
    assert doubtful(EPILOGUE.replace("\n\n", "\n"), TAILED) == set()


@pytest.mark.parametrize(
    "change", [str.expandtabs, lambda text: f"\ufeff{text}", lambda text: text.replace("\n", "\r")]
)
def test_marks_tabs_and_line_ends_are_no_part_of_the_text(change: Callable[[str], str]) -> None:
    tabbed = WHOLE.replace("  --model MODEL         What", "  --model MODEL\t\tWhat").replace("        ", "\t")
    assert read(change(WHOLE)) == read(change(tabbed)) == read(WHOLE)


def test_only_line_ends_end_lines() -> None:
    odd = WHOLE.replace("What to serve; ", "What\u2028  --to serve\x85  --or\x0b  --not\x0c  --at all")
    assert read(odd) == read(WHOLE)


# whose text it is


@pytest.mark.parametrize("name", ["python3 -m engine.serve", "python3.14 -m engine", "pypy3 -m engine"])
def test_the_name_of_a_module_is_no_option(name: str) -> None:  # Python 3.14
    renamed = read(WHOLE.replace("usage: engine serve", f"usage: {name}"), Program("x", called="engine"))
    assert renamed == read(WHOLE)


def test_another_programs_help_is_refused_by_its_name() -> None:
    assert read(WHOLE, Program("e --help", called=r"^engine\b")) == read(WHOLE)
    with pytest.raises(NotCompleteHelp, match="this is the help of another program, engine serve; run e --help"):
        read(WHOLE, Program("e --help", called=r"^motor\b"))


# texts by which no flag may be judged


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no help text: it is empty; run engine --help"),
        (" \r\n \x1b[0m", "no help text: it is empty; run engine --help"),
        ("engine: command not found\n", "no help text: it documents no option at all; run engine --help"),
        ("usage: engine [options]\n\nServes.\n", "no help text: it documents no option at all; run engine --help"),
        (
            "usage: e [-h] [-v] {chat,serve} ...\n\noptions:\n  -h, --help     x\n  -v, --version  x\n",
            "wrong level of help: it lists subcommands only; run engine --help",
        ),
        (
            "usage: e [-h] [-v] {chat,serve} ...\ne: error: unrecognized arguments: --old\n",
            "wrong level of help: it lists subcommands only; run engine --help",
        ),
        (
            "usage: e serve [options]\ne serve: error: unrecognized arguments: --old\n",
            "an error message, not help: e serve: error: unrecognized arguments: --old; run engine --help",
        ),
        (
            'Traceback (most recent call last):\n  File "e.py", line 1\nRuntimeError: no device\n\nINFO bye\n',
            "help could not be produced: RuntimeError: no device; run it on another node",
        ),
        (
            "x\nTraceback (most recent call last):\n  File\nValueError: badly formed help string\n",
            "help could not be produced: ValueError: badly formed help string; run engine --help by hand",
        ),
    ],
)
def test_a_text_without_flags_is_refused_with_the_way_out(text: str, reason: str) -> None:
    with pytest.raises(NotCompleteHelp) as caught:
        read(text)
    assert caught.value.reason == reason


@given(
    st.text()
    | st.lists(st.sampled_from([*WHOLE.splitlines(), *USAGE.splitlines(), "  -", "  --", "  -x {"])).map("\n".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    for program in (PROGRAM, TAILED):
        try:
            table = read(text, program)
        except NotCompleteHelp:
            continue
        assert table.flags
        assert all(flag.names and flag.arity.least >= 0 for flag in table.flags)


# the law, over real texts

RECORDED = [*recorded_helps("vllm-"), *recorded_helps("sglang-")]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_cut_that_loses_a_definition_shows_and_makes_no_wrong_flag(path: Path) -> None:
    program = TAILED if path.name.startswith("vllm") else PROGRAM
    text = recorded_help(path.name)
    whole = read(text, program)
    assert not whole.cuts
    for part in (part for parts in cut_between_lines(text) for part in parts):
        try:
            cut = read(part, program)
        except NotCompleteHelp:
            continue
        defined = [flag for flag in cut.flags if flag.is_defined]
        assert cut.cuts or len(cut.flags) == len(whole.flags)
        assert set(defined[:-1]) <= set(whole.flags)
        for flag in cut.flags:
            origin = next(filter(None, map(whole.find, flag.names)))
            assert (flag.arity, set(flag.choices)) == (origin.arity, set(origin.choices))
            assert set(flag.replaced_by) <= set(origin.replaced_by)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_only_real_deprecations_are_deprecations(path: Path) -> None:
    """Seen by eye once: at most a tenth of any version's flags, each saying so of itself."""
    table = read(recorded_help(path.name))
    stated = [flag for flag in table.flags if flag.state is not FlagState.LIVE]
    assert len(stated) * 10 <= len(table.flags)
    assert all(any(word in flag.note.lower() for word in ("deprecated", "removed", "no effect")) for flag in stated)

import pytest

from llmgw_core.engine import ONE, SWITCH, Arity, Flag, FlagState, FlagTable, Rename, Spelling
from llmgw_core.plan.command_line import read_uses
from llmgw_core.plan.verdict import Judgement, Verdict, judge

TABLE = FlagTable(
    (
        Flag(("--port",)),
        Flag(("--port-range",)),
        Flag(("-fa", "--flash-attn"), ONE, choices=("on", "off", "auto")),
        Flag(("--main-gpu",)),
        Flag(("--metrics",), SWITCH),
        Flag(("--tp-size", "--tensor-parallel-size")),
        Flag(("--pp-size",)),
        Flag(("--pp-max-micro-batch-size",)),
        Flag(
            ("--draft-max",),
            state=FlagState.REMOVED,
            note="use --spec-draft-n-max",
            replaced_by=("--spec-draft-n-max",),
        ),
        Flag(("--spec-draft-n-max",)),
        Flag(("--ep-moe",), SWITCH, state=FlagState.DEPRECATED, note="set --ep-size"),
        Flag(("--spec-type",), choices=("none", "ngram"), listed_value=True),
        Flag(("--parser",), choices=("hermes",), open_choices=True),
        Flag(("--roles",), Arity(0, None), choices=("a", "b")),
        Flag(("--load-mode",)),
        Flag(("--usage-only",), state=FlagState.UNSTATED),
    )
)
RENAMES = (
    Rename("--no-mmap", ("--load-mode none",), "b10991", "help of b10434"),
    Rename("--enable-reasoning", (), "0.10.2", "help"),
    Rename("--disable-log", ("--metrics",), "0.18.0", "help", flips=True),
    Rename("--older", ("--old",), "1", "s"),
    Rename("--old", ("--port",), "2", "s"),
    Rename("--never", ("--port",), "", "source", note="an old typing mistake"),
)
ARGPARSE = Spelling(abbreviates=True)
SWALLOWING = Spelling(equals=False, swallows=True)


def judged(words: str, spelling: Spelling = ARGPARSE) -> Judgement:
    return judge(read_uses(words.split(), TABLE, spelling)[0], TABLE, spelling, RENAMES)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("--port 80", Verdict.ACCEPTED),
        ("--port=80", Verdict.ACCEPTED),
        ("--por 80", Verdict.ABBREVIATION),
        ("--tp 8", Verdict.ABBREVIATION),
        ("--pp 2", Verdict.ABBREVIATION),
        ("--ports 80", Verdict.NOT_DOCUMENTED),
        ("-port 80", Verdict.NOT_DOCUMENTED),
        ("-p 80", Verdict.NOT_DOCUMENTED),
        ("--PORT 80", Verdict.NOT_DOCUMENTED),
        ("--port", Verdict.WRONG_ARITY),
        ("--metrics true", Verdict.WRONG_ARITY),
        ("--metrics=true", Verdict.WRONG_ARITY),
        ("-fa --main-gpu 0", Verdict.WRONG_ARITY),
        ("-fa sometimes", Verdict.BAD_CHOICE),
        ("-fa on", Verdict.ACCEPTED),
        ("--spec-type none,ngram", Verdict.ACCEPTED),
        ("--spec-type none,mtp", Verdict.BAD_CHOICE),
        ("--parser mine", Verdict.ACCEPTED),
        ("--roles a b", Verdict.ACCEPTED),
        ("--roles", Verdict.ACCEPTED),
        ("--roles a c", Verdict.BAD_CHOICE),
        ("--draft-max 4", Verdict.REMOVED),
        ("--ep-moe", Verdict.DEPRECATED),
        ("--usage-only 1", Verdict.UNCHECKED),
        ("--enable-reasoning", Verdict.NOT_DOCUMENTED),
    ],
)
def test_verdicts(words: str, verdict: Verdict) -> None:
    assert judged(words).verdict is verdict


def test_a_bare_flag_that_wants_a_value_names_the_flag_it_would_swallow() -> None:
    found = judged("-fa --main-gpu 0", SWALLOWING)
    assert found.verdict is Verdict.WRONG_ARITY
    assert found.detail == "takes one value (on|off|auto), and would swallow the next flag, --main-gpu"


def test_an_ambiguous_beginning_says_so_and_an_unambiguous_one_says_what_it_is_short_for() -> None:
    assert "ambiguous" in judged("--pp 2").detail
    assert judged("--pp 2").suggestions == ("--pp-size", "--pp-max-micro-batch-size")
    assert "ambiguous" not in judged("--tp 8").detail
    assert judged("--tp 8").suggestions == ("--tp-size",)


def test_a_joined_value_is_refused_where_the_engine_refuses_it() -> None:
    found = judged("--port=80", SWALLOWING)
    assert found.verdict is Verdict.NOT_DOCUMENTED
    assert found.suggestions == ("--port 80",)


def test_removed_flags_show_the_engines_words_and_the_replacement() -> None:
    assert judged("--draft-max 4") == Judgement(Verdict.REMOVED, "use --spec-draft-n-max", ("--spec-draft-n-max",))


@pytest.mark.parametrize(
    ("words", "suggestions"),
    [
        ("--no-mmap", ("--load-mode none",)),
        ("--enable-reasoning", ()),
        ("--older 1", ("--port",)),  # through --old, which this help has no more
        ("--port-rang 1", ("--port-range",)),
        ("--nothing-like-it", ()),
    ],
)
def test_suggestions_come_from_this_help(words: str, suggestions: tuple[str, ...]) -> None:
    assert judged(words, Spelling()).suggestions == suggestions


def test_a_flag_that_nothing_replaces_is_to_be_left_out() -> None:
    assert judged("--enable-reasoning").detail == "gone by 0.10.2 (help); leave it out"


def test_an_abbreviation_names_the_spelling_that_it_begins() -> None:
    table = FlagTable((Flag(("--tensor-parallel-size", "--tp-size")),))
    use = read_uses(["--tp", "8"], table, ARGPARSE)[0]
    assert judge(use, table, ARGPARSE, ()).suggestions == ("--tp-size",)


def test_a_rename_that_flips_the_sense_says_so() -> None:
    assert "means the opposite" in judged("--disable-log").detail


def test_a_flag_that_never_was_is_not_called_gone() -> None:
    assert judged("--never 1").detail == "no version is known to have it (source); an old typing mistake"


def test_the_longer_flag_of_the_same_beginning_is_named_first() -> None:
    table = FlagTable((Flag(("--port-range",)), Flag(("--prio",)), Flag(("-ot",))))
    use = read_uses(["--port", "1"], table, Spelling())[0]
    assert judge(use, table, Spelling(), ()).suggestions[0] == "--port-range"

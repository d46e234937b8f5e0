import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import SWITCH, Arity, Flag, FlagTable, Spelling
from llmgw_core.plan.command_line import Use, flags_in, read_uses

PORT = Flag(("--port",))
HOST = Flag(("--host",))
NAMES = Flag(("--served-model-name",), Arity(1, None))
METRICS = Flag(("--metrics", "--no-metrics"), SWITCH)
COMPILE = Flag(("--compilation-config", "-cc"))
LEVEL = Flag(("-O",))
RANGE = Flag(("--range",), Arity(2, 2))
TABLE = FlagTable((PORT, HOST, NAMES, METRICS, COMPILE, LEVEL, RANGE))
ARGPARSE = Spelling(underscore_is_dash=True, dotted=True, abbreviates=True, attached=True, positionals=1)
PLAIN = Spelling(equals=False, swallows=True)


@pytest.mark.parametrize(
    ("args", "uses"),
    [
        (["M", "--port", "80"], [Use("--port", PORT, values=("80",))]),
        (["M", "--port=80"], [Use("--port", PORT, values=("80",), joined=True)]),
        (["M", '--port={"a": "b=c"}'], [Use("--port", PORT, values=('{"a": "b=c"}',), joined=True)]),
        (
            ["M", "--served-model-name", "a", "b", "--metrics"],
            [Use("--served-model-name", NAMES, values=("a", "b")), Use("--metrics", METRICS)],
        ),
        (["M", "--served_model_name", "a"], [Use("--served_model_name", NAMES, values=("a",))]),
        (
            ["M", "--compilation-config.max_size", "3"],
            [Use("--compilation-config.max_size", COMPILE, values=("3",), sub_flag=True)],
        ),
        (["M", "-cc.mode=none"], [Use("-cc.mode", COMPILE, values=("none",), joined=True, sub_flag=True)]),
        (["M", "-O3"], [Use("-O", LEVEL, values=("3",), joined=True)]),
        (["M", "--por", "80"], [Use("--por", abbreviates=(PORT,), values=("80",))]),
        (["M", "--gone", "5", "--metrics"], [Use("--gone", values=("5",)), Use("--metrics", METRICS)]),
        (["M", "--metrics", "true"], [Use("--metrics", METRICS, strays=("true",))]),
        (["M", "--port", "--metrics"], [Use("--port", PORT), Use("--metrics", METRICS)]),
        (["M", "--port", "-1"], [Use("--port", PORT, values=("-1",))]),
        (["M", "--range", "1", "2", "3"], [Use("--range", RANGE, values=("1", "2"), strays=("3",))]),
        (["M", "N"], [Use("N")]),
        ([], []),
    ],
)
def test_argparse_command_lines(args: list[str], uses: list[Use]) -> None:
    assert list(read_uses(args, TABLE, ARGPARSE)) == uses


@pytest.mark.parametrize(
    ("args", "uses"),
    [
        (["--port", "--metrics"], [Use("--port", PORT, values=("--metrics",))]),
        (["--por", "80"], [Use("--por", values=("80",))]),
        (["--served_model_name", "a"], [Use("--served_model_name", values=("a",))]),
        (["--port=80"], [Use("--port", PORT, values=("80",), joined=True)]),
        (["-O3"], [Use("-O3")]),
    ],
)
def test_parsers_that_swallow_and_know_exact_names_only(args: list[str], uses: list[Use]) -> None:
    assert list(read_uses(args, TABLE, PLAIN)) == uses


def test_own_flags_are_found_in_every_spelling_of_the_program() -> None:
    args = ["--served_model_name", "--port", "--port=1", "-O", "80"]
    assert flags_in(args, ("--port", "--host", "--served-model-name"), ARGPARSE) == (
        "--port",
        "--served-model-name",
    )
    assert flags_in(args, ("--served-model-name",), PLAIN) == ()


@given(st.lists(st.text() | st.text(alphabet="-=.{}a_ 1", max_size=8)), st.sampled_from([ARGPARSE, PLAIN, Spelling()]))
def test_any_words_are_read_and_none_is_lost(args: list[str], spelling: Spelling) -> None:
    uses = read_uses(args, TABLE, spelling)
    words = sum(1 + len(use.strays) + (0 if use.joined else len(use.values)) for use in uses)
    assert len(args) - spelling.positionals <= words <= len(args)

from __future__ import annotations

from typing import Any

import pytest

from llmgw_core.engine import FlagState, NotCompleteHelp, Rename
from llmgw_core.help.environment import HELP_ENV
from llmgw_core.plan.command_line import read_uses
from llmgw_core.surface import version_key
from llmgw_core.testing.recorded import recorded_help, recorded_parser
from llmgw_engine_sglang.asking import help_commands, read_version, version_command
from llmgw_engine_sglang.help import read_help
from llmgw_engine_sglang.info import INFO
from llmgw_engine_sglang.renames import RENAMES

VERSIONS = INFO.checked_versions
MODULE = ("/opt/sglang/bin/python3", "-m", "sglang.launch_server")
ARITIES = {None: (1, 1), 0: (0, 0), "?": (0, 1), "*": (0, None), "+": (1, None)}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_help_text_says_what_the_parser_has(version: str) -> None:
    table = read_help(recorded_help(f"sglang-{version}.help.txt"))
    actions = recorded_parser(f"sglang-{version}.json")["actions"]
    assert not table.cuts
    # Suppressed options are accepted and stand in no help.
    declared = [_facts(action) for action in actions if action["help"] != "==SUPPRESS=="]
    read = [(flag.names, (flag.arity.least, flag.arity.most), sorted(flag.choices)) for flag in table.flags]
    assert read == declared
    assert not any(flag.open_choices for flag in table.flags)


def _facts(action: dict[str, Any]) -> tuple[Any, ...]:
    """Choices are compared without their order, which is random where SGLang declares a set."""
    choices = [str(value) for value in (action["choices"] or {"values": []})["values"]]
    return tuple(action["opts"]), ARITIES[action["nargs"]], sorted(choices)


@pytest.mark.parametrize("version", VERSIONS)
def test_deprecated_switches_are_seen_as_such(version: str) -> None:
    table = read_help(recorded_help(f"sglang-{version}.help.txt"))
    for action in recorded_parser(f"sglang-{version}.json")["actions"]:
        shown = action["help"] != "==SUPPRESS==" and "eprecat" in str(action["help"])
        if str(action["action"]).startswith("Deprecated") and shown:
            flag = table.find(action["opts"][0])
            assert flag is not None
            assert flag.state is FlagState.DEPRECATED


def test_a_removed_switch_is_removed_although_it_is_listed() -> None:
    flag = read_help(recorded_help("sglang-0.5.18.help.txt")).find("--enable-expert-distribution-metrics")
    assert flag is not None
    assert flag.state is FlagState.REMOVED
    assert flag.replaced_by == ("--expert-balancedness-report-mode",)


@pytest.mark.parametrize("rename", RENAMES, ids=lambda rename: rename.old)
def test_renames_agree_with_the_recorded_parsers(rename: Rename) -> None:
    for version in VERSIONS:
        if version_key(version) < version_key(rename.gone_from):
            continue
        table = read_help(recorded_help(f"sglang-{version}.help.txt"))
        flag = table.find(rename.old)
        # 0.5.3 and 0.5.4 list switches that raise when they are used.
        assert flag is None or flag.state is not FlagState.LIVE, version
        assert all(table.documents(new.split()[0]) for new in rename.new), version


TEXT = """\
usage: sglang serve [-h] --model-path MODEL_PATH [--tp-size TP_SIZE]
                    [--dsa-prefill-backend {a,b}]

options:
  -h, --help            show it
  --model-path MODEL_PATH, --model MODEL_PATH
                        What.
  --tp-size TP_SIZE, --tensor-parallel-size TP_SIZE
                        How many.
  --dsa-prefill-backend {a,b}
                        How.
"""


def test_near_misses_are_not_the_flag() -> None:
    table = read_help(TEXT)
    words = ("--model_path", "M", "--nsa-prefill-backend", "a", "--tp", "2")
    uses = read_uses(words, table, INFO.programs[0].spelling)
    assert not any(use.found for use in uses)
    assert [bool(use.abbreviates) for use in uses] == [False, False, True]


def test_the_diffusion_servers_appended_flags_are_not_the_servers() -> None:
    appended = "\nusage: sglang serve [-h] [--num-gpus N]\n\noptions:\n  -h, --help  x\n  --num-gpus N  x\n"
    assert read_help(TEXT + appended) == read_help(TEXT)


def test_a_parser_error_is_a_whole_list() -> None:
    table = read_help(TEXT[: TEXT.index("\noptions")] + "sglang: error: unrecognized arguments: --enable_metrics\n")
    assert not table.cuts
    assert table.documents("--model-path")
    assert not table.documents("--enable_metrics")


def test_a_broken_installation_is_could_not_check() -> None:
    traceback = "Traceback (most recent call last):\n  File\nModuleNotFoundError: No module named 'triton'\n"
    with pytest.raises(NotCompleteHelp, match=r"No module named 'triton'; install what is missing"):
        read_help(traceback)


# asking


def test_each_way_of_calling_it_is_asked_for_help_in_its_own_way() -> None:
    assert [command.args for command in help_commands("sglang", MODULE)] == [("--help",)]
    script = help_commands("sglang", ("/opt/bin/sglang",))
    assert [command.args for command in script] == [("serve", "--model-type", "llm", "--help"), ("serve", "--help")]
    assert script[0].env == HELP_ENV


def test_the_version_is_asked_of_the_same_python() -> None:
    command = version_command("sglang", MODULE)
    assert command.executable == MODULE[:1]
    assert command.args[0] == "-c"
    assert version_command("sglang", ("sglang",)).argv == ("sglang", "version")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.5.23\n", "0.5.23"),
        ("WARNING 01-01 x\n0.4.6.post5\n", "0.4.6.post5"),
        ("sglang 0.5.9\n", "0.5.9"),
        ("sglang version: 0.5.14\ngit revision: abcdef\n", "0.5.14"),
        ("importlib.metadata.PackageNotFoundError: No package metadata was found for sglang", None),
        ("", None),
    ],
)
def test_the_version_is_found_among_log_lines(text: str, version: str | None) -> None:
    assert read_version(text) == version

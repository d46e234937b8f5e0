from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_core.engine import Command, Exit, FlagState, NotCompleteHelp, Rename
from llmgw_core.help.environment import HELP_ENV
from llmgw_core.plan.command_line import read_uses
from llmgw_core.surface import version_key
from llmgw_core.testing.recorded import recorded_help, recorded_helps
from llmgw_engine_vllm.asking import dry_run, help_commands, read_dry_run, read_version, version_command
from llmgw_engine_vllm.help import read_help
from llmgw_engine_vllm.info import INFO
from llmgw_engine_vllm.renames import RENAMES

TEXT = """\
INFO 01-01 00:00:00 [log.py:1] --host is not documented by this
usage: vllm serve [model_tag] [options]

Serves. Use `--help=all` for more.

positional arguments:
  model_tag             What.

options:
  --enable-log-requests, --disable-log-requests
                        Logs.
  --disable-cascade, --enable-cascade
                        Cascades.
  --headless            No API.
  -h, --help            show it

ModelConfig:
  How to compile.

  --optimization-level OPTIMIZATION_LEVEL
                        Fast or faster.
  --compilation-config COMPILATION_CONFIG, -cc COMPILATION_CONFIG
                        One JSON object.
  --trust-remote-code, --no-trust-remote-code
                        Trusts.

When passing JSON CLI arguments, the following are equivalent:
   --json-arg.key value
"""


def test_a_whole_text_shows_no_cut_and_what_stands_around_defines_nothing() -> None:
    table = read_help(TEXT)
    assert not table.cuts
    assert not {"--host", "--help=all", "--json-arg.key", "--json-arg"} & set(table.names)


def test_spellings_that_are_accepted_and_not_listed_are_known() -> None:
    table = read_help(TEXT)
    assert table.find("--no-enable-log-requests") is table.find("--enable-log-requests")
    assert table.find("--no-disable-cascade") is table.find("--disable-cascade")
    assert table.find("-O") is table.find("--optimization-level")
    assert not table.documents("--no-headless")
    assert not table.documents("--no-no-trust-remote-code")
    older = read_help(TEXT.replace("-cc COMP", "-O COMP").replace(", --disable-log-requests", ""))
    assert older.find("-O") is older.find("--compilation-config")
    assert not older.documents("--no-enable-log-requests")


def test_names_are_spelled_as_vllms_parser_reads_them() -> None:
    words = ("serve", "M", "-O3", "--compilation_config.mode", "3", "--trust_remote_code", "--head")
    uses = read_uses(words, read_help(TEXT), INFO.programs[0].spelling)
    assert [use.written for use in uses] == ["-O", "--compilation_config.mode", "--trust_remote_code", "--head"]
    assert [use.found is not None for use in uses] == [True, True, True, False]
    assert uses[3].abbreviates


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("usage: vllm serve [model_tag] [options]\n\nConfig Groups:\n  options\n  ModelConfig  x\n", "groups only"),
        ("\nParameters matching 'all':\n--allow-credentials\n  --all X\n", "the result of a search"),
        ("No group or arguments matching 'x'\n", "a search without a result"),
        ("usage: vllm [-h] [-v]\n            {chat,serve} ...\n\noptions:\n  -h, --help  x\n", "subcommands only"),
    ],
)
def test_another_level_of_help_is_named_with_the_command_for_the_right_one(text: str, said: str) -> None:
    with pytest.raises(NotCompleteHelp, match=r"wrong level of help: .*vllm serve --help=all") as caught:
        read_help(text)
    assert said in caught.value.reason


def test_a_node_without_a_gpu_is_told_what_to_do() -> None:
    with pytest.raises(NotCompleteHelp, match=r"Failed to infer device type; run it on a GPU node, or .*=cpu"):
        read_help("INFO x\nTraceback (most recent call last):\n  File\nRuntimeError: Failed to infer device type\n")


@pytest.mark.parametrize("name", ["vllm-0.32.0.groups-only.txt", "vllm-0.10.2.help=all.substring-search.txt"])
def test_recorded_texts_of_another_level_are_refused(name: str) -> None:
    with pytest.raises(NotCompleteHelp, match="wrong level of help"):
        read_help(recorded_help(name))


@pytest.mark.parametrize("path", recorded_helps("vllm-"), ids=lambda path: path.name)
def test_recorded_texts_are_whole_and_hold_what_every_version_has(path: Path) -> None:
    table = read_help(recorded_help(path.name))
    assert not table.cuts
    assert path.name.removeprefix("vllm-").removesuffix(".help.txt") in INFO.checked_versions
    stable = "--host --port -tp -pp -dp --served-model-name -q --api-key --speculative-config --config --headless"
    assert all(table.documents(name) for name in stable.split())
    assert not any(flag.state is FlagState.UNSTATED for flag in table.flags)


def test_flags_come_and_go_between_recorded_versions() -> None:
    tables = {v: read_help(recorded_help(f"vllm-{v}.help.txt")) for v in ("0.10.2", "0.13.0", "0.20.2", "0.32.0")}
    has = {name: [table.documents(name) for table in tables.values()] for name in ("--nnodes", "--task", "-O")}
    assert has == {
        "--nnodes": [False, True, True, True],
        "--task": [True, False, False, False],
        "-O": [True, True, True, True],
    }
    assert not tables["0.20.2"].documents("--disable-log-requests")
    assert tables["0.20.2"].documents("--no-enable-log-requests")


@pytest.mark.parametrize("rename", RENAMES, ids=lambda rename: rename.old)
def test_renames_agree_with_the_recorded_texts(rename: Rename) -> None:
    for path in recorded_helps("vllm-"):
        version = path.name.removeprefix("vllm-").removesuffix(".help.txt")
        if version_key(version) >= version_key(rename.gone_from):
            table = read_help(recorded_help(path.name))
            assert not table.documents(rename.old), version
            assert all(table.documents(new.split()[0]) for new in rename.new), version


# asking


def test_help_is_asked_for_whole_wide_and_without_pager() -> None:
    first, second = help_commands("vllm", ("/opt/vllm/bin/vllm",))
    assert first.argv == ("/opt/vllm/bin/vllm", "serve", "--help=all")
    assert second.argv == ("/opt/vllm/bin/vllm", "serve", "--help")
    assert first.env == HELP_ENV
    assert version_command("vllm", ("vllm",)).argv == ("vllm", "--version")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.32.0+cpu\n", "0.32.0+cpu"),
        ("INFO 01-01 00:00:00 [log.py:1] Triton 3.1.0\n0.10.2\n", "0.10.2"),
        ("vllm 0.9.2", "0.9.2"),
        ("0.33.0rc1.dev5+gabc\r\n", "0.33.0rc1.dev5+gabc"),
        ("Traceback (most recent call last):\n  3.11", None),
        ("", None),
    ],
)
def test_the_version_is_found_among_log_lines(text: str, version: str | None) -> None:
    assert read_version(text) == version


def test_a_dry_run_is_the_same_command_with_one_flag_that_nobody_has() -> None:
    command = Command("vllm", ("vllm",), ("serve", "M"), ("--mine",), env={"A": "1"})
    harmless = dry_run(command)
    assert harmless.argv == ("vllm", "serve", "M", "--mine", "--zz-sentinel")
    assert harmless.env["A"] == "1"


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        (2, "usage: vllm serve\nvllm: error: unrecognized arguments: --zz-sentinel\n", ()),
        (
            2,
            "vllm: error: unrecognized arguments: --disable-log-requests --all2all-backend x --zz-sentinel\nhint: y\n",
            ("--disable-log-requests", "--all2all-backend x"),
        ),
        (
            2,
            "vllm serve: error: argument --dtype: invalid choice: 'x'\n",
            ("argument --dtype: invalid choice: 'x'",),
        ),
        (2, "vllm: error: unrecognized arguments: --other\n", None),
        (2, "", None),
        (1, "RuntimeError: Failed to infer device type", None),
        (0, "", None),
    ],
)
def test_a_dry_runs_answer(code: int, log: str, said: tuple[str, ...] | None) -> None:
    assert read_dry_run(Exit(code, log_tail=log)) == said

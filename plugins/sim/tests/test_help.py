"""The real help of the simulated engine, read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from llmgw_core.engine import ONE, SWITCH, NotCompleteHelp
from llmgw_engine_sim import llmgw_build_command, llmgw_help_commands, llmgw_read_help, llmgw_widest_specs

EXECUTABLE = (sys.executable, "-m", "llmgw_engine_sim")


@pytest.fixture(scope="module")
def text() -> str:
    (command,) = llmgw_help_commands("llmgw-sim", EXECUTABLE)
    return subprocess.run(
        command.argv, env=dict(command.env), capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_the_help_is_whole_and_documents_every_flag_that_is_passed(text: str) -> None:
    table = llmgw_read_help(text)
    commands = [llmgw_build_command(shard) for spec in llmgw_widest_specs() for shard in spec.shards]

    assert table.cuts == ()
    assert {
        arg for command in commands for arg in command.args if arg[:2] == "--" and not table.documents(arg)
    } == set()


@pytest.mark.parametrize(("name", "arity"), [("--model", ONE), ("--no-metrics", SWITCH), ("--join-timeout", ONE)])
def test_a_flag_takes_what_it_says(text: str, name: str, arity: object) -> None:
    flag = llmgw_read_help(text).find(name)

    assert flag is not None
    assert flag.arity == arity


@pytest.mark.parametrize("text", ["", "llmgw-sim: error: the following arguments are required: --model\n"])
def test_what_is_no_help_is_refused(text: str) -> None:
    with pytest.raises(NotCompleteHelp):
        llmgw_read_help(text)


def test_the_help_needs_no_trio() -> None:
    script = "import sys; sys.argv = ['x', '--help']\ntry:\n import llmgw_engine_sim.__main__ as m; m.main()\n"
    script += "finally:\n print('trio' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.endswith("\nFalse\n")

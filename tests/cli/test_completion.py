"""The shells' completion: a script for each, and what it asks the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LLMGW = Path(sys.executable).with_name("llmgw")
TIMEOUT_S = 60


def llmgw(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LLMGW, *words], capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **environ}
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    ended = llmgw("completion", shell)
    assert ended.returncode == 0
    assert f"_LLMGW_COMPLETE={shell}_complete" in ended.stdout


def test_bash_takes_its_script() -> None:
    script = llmgw("completion", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=TIMEOUT_S)


def test_another_shell_is_refused_with_those_that_there_are() -> None:
    ended = llmgw("completion", "tcsh")
    assert ended.returncode == 2
    assert "'bash', 'fish', 'zsh'" in ended.stderr


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("llmgw c", {"ca", "completion", "control", "ctl"}),
        ("llmgw ctl no", {"node", "nodes"}),
        ("llmgw ctl engine-check --all-", {"--all-versions", "--all-nodes"}),
        ("llmgw ctl cert r", {"revoke"}),
        ("llmgw completion z", {"zsh"}),
    ],
)
def test_commands_options_and_choices_are_completed(line: str, completed: set[str]) -> None:
    words = line.split()
    ended = llmgw(_LLMGW_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert {each.split(",")[1] for each in ended.stdout.split()} == completed

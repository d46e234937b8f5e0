"""What both scripts have in common."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from llmgw_core.cli.onboard_node import _way_out, onboard_node
from llmgw_core.cli.provision_node import provision_node
from llmgw_core.onboard.installing import _PUT

BIN = Path(sys.executable).parent


def test_both_say_the_version_of_llmgw() -> None:
    scripts = ("llmgw", "llmgw-onboard-node", "llmgw-provision-node")
    said = {subprocess.run([BIN / name, "--version"], check=True, capture_output=True).stdout for name in scripts}
    assert len(said) == 1


@pytest.mark.parametrize("command", [onboard_node, provision_node])
def test_help_can_be_printed_in_any_encoding(command: click.Command) -> None:
    assert CliRunner().invoke(command, ["--help"]).output.isascii()


@pytest.mark.parametrize(
    ("reason", "way"),
    [
        ("its certificate, serial 0a, is revoked", "run this again with --new-certificate"),
        ("two machines claim one name", "the agent at h goes on calling, and has the name once the other is away"),
        ("Connection refused", "journalctl -u llmgw-agent.service on h goes on"),
    ],
)
def test_a_node_that_is_not_let_in_has_its_way_out(reason: str, way: str) -> None:
    assert _way_out(reason, "h").startswith(way)


def test_a_file_is_not_moved_into_a_directory_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").mkdir()
    words = ["sh", "-c", _PUT, "put", str(tmp_path / "agent.toml"), "644", "digest", ""]
    ended = subprocess.run(words, input="", capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, f"{tmp_path}/agent.toml is a directory: remove it\n")
    assert list(tmp_path.rglob("*")) == [tmp_path / "agent.toml"]

"""What both scripts have in common."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from llmgw_core.cli.onboard_node import onboard_node
from llmgw_core.cli.provision_node import provision_node

BIN = Path(sys.executable).parent


def test_both_say_the_version_of_llmgw() -> None:
    scripts = ("llmgw", "llmgw-onboard-node", "llmgw-provision-node")
    said = {subprocess.run([BIN / name, "--version"], check=True, capture_output=True).stdout for name in scripts}
    assert len(said) == 1


@pytest.mark.parametrize("command", [onboard_node, provision_node])
def test_help_can_be_printed_in_any_encoding(command: click.Command) -> None:
    assert CliRunner().invoke(command, ["--help"]).output.isascii()

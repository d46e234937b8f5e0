"""What the pages on making a machine and on weights say is so."""

import re
from pathlib import Path

import click
import pytest

from llmgw_core.cli.provision_node import provision_node
from llmgw_core.cli.weights import weights
from llmgw_core.provision.user_data import MOST_BYTES

DOCS = Path(__file__).resolve().parents[2] / "docs"
MACHINE = (DOCS / "how-to-provision-a-machine.md").read_text(encoding="utf-8")
WEIGHTS = (DOCS / "reference-weights.md").read_text(encoding="utf-8")


def options(command: click.Command) -> set[str]:
    shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return {name for each in shown for name in each.opts}


def documented(text: str) -> set[str]:
    cells = re.findall(r"^\| (`--[^|]*)\|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(--[a-z][\w-]*)", cell)}


def test_the_options_for_a_machine_are_those_of_the_page() -> None:
    assert documented(MACHINE) == options(provision_node)


@pytest.mark.parametrize(
    ("option", "default"),
    [
        ("user", "root"),
        ("bridge", "vmbr0"),
        ("wait", 600),
        ("cores", 4),
        ("memory", "8G"),
        ("snippets_storage", "local"),
    ],
)
def test_the_defaults_for_a_machine_are_those_of_the_page(option: str, default: object) -> None:
    (found,) = (each for each in provision_node.params if each.name == option)
    assert found.default == default
    (row,) = (line for line in MACHINE.splitlines() if re.match(rf"\| .*`--{option.replace('_', '-')} ", line))
    assert str(default) in row


def test_the_options_for_weights_are_those_of_the_page() -> None:
    commands = weights.commands.values()
    assert documented(WEIGHTS) == {name for each in commands for name in options(each)}


def test_user_data_fits_on_the_drive_that_the_page_tells_of() -> None:
    assert "takes 3 MiB" in MACHINE
    assert MOST_BYTES < 3 * 2**20

"""What the page on adding a node says is so."""

import re
import subprocess
from pathlib import Path

import click
import pytest

from llmgw_core.cli.onboard_node import onboard_node
from llmgw_core.demo.fleet import NODES
from llmgw_core.discovery.nvidia_smi import FIELD_SETS, query, read_gpus
from llmgw_core.model.node import Found
from llmgw_core.onboard.request import ETC, SETTINGS, UNFINISHED, UNIT
from llmgw_core.pki.validity import LIFE_DAYS
from llmgw_core.provision.awaiting import RELEASE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to-add-a-node.md").read_text(encoding="utf-8")


def test_the_options_are_those_of_the_page() -> None:
    shown = [each for each in onboard_node.params if isinstance(each, click.Option)]
    cells = re.findall(r"^\| (`--[^|]*)\|", PAGE, re.MULTILINE)
    documented = {name for cell in cells for name in re.findall(r"`(--[a-z][\w-]*)", cell)}
    assert documented == {name for each in shown for name in each.opts}


@pytest.mark.parametrize(
    ("option", "default"), [("wait", 60), ("days", LIFE_DAYS), ("ssh_user", "root"), ("ssh_port", 22)]
)
def test_the_defaults_are_those_of_the_page(option: str, default: object) -> None:
    (found,) = (each for each in onboard_node.params if each.name == option)
    assert found.default == default
    (row, *_) = (line for line in PAGE.splitlines() if re.match(rf"\| .*`--{option.replace('_', '-')} ", line))
    assert str(default) in row


def test_the_files_are_those_of_the_page() -> None:
    for path in (f"{ETC}/ca.crt", SETTINGS, UNIT, UNFINISHED, RELEASE):
        assert f"| `{path}` |" in PAGE


def test_the_made_up_nvidia_smi_is_one(tmp_path: Path) -> None:
    section = PAGE.partition("### A made-up nvidia-smi")[2].partition("\n## ")[0]
    fields = FIELD_SETS[0]
    assert ", ".join(f"`{each}`" for each in fields) in " ".join(section.split())
    script = tmp_path / "made-up-smi"
    script.write_text(section.partition("```\n")[2].partition("```")[0])
    script.chmod(0o755)
    printed = subprocess.run(query(str(script), fields), capture_output=True, text=True, timeout=30, check=True).stdout
    report = read_gpus(printed, fields)
    assert (report.outcome, report.reason) == (Found.SOME, "")
    assert [gpu.memory_total_mib for gpu in report.gpus] == [81559, 81559]


def test_the_demo_leaves_the_examples_that_the_page_names() -> None:
    assert f"`DIR/{NODES[0].name}/nvidia-smi`" in PAGE
    assert f"`DIR/{NODES[0].name}/infiniband`" in PAGE

"""What a node says reaches an operator's terminal as text, and as nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.cli.asking import NotAnswered, _rendered
from llmgw_core.cli.fleet import render_node, render_nodes
from llmgw_core.cli.fleet_check import _rendered as rendered_report
from llmgw_core.cli.printable import printable, printable_layout, printable_text
from llmgw_core.cli.table import render_table
from llmgw_core.net.call import NotReached
from llmgw_core.plan.engine_check import EngineReport, Outcome

LLMGW = Path(sys.executable).with_name("llmgw")
EVIL = "a\x1b[2J\x1b]0;owned\x07\r\nTROUBLE none\x9b1A\u202e\x7f"
NODE = {
    "name": "gpu1",
    "state": "online",
    "address": "10.0.0.1",
    "first_seen": 0.0,
    "last_seen": 0.0,
    "days_left": 80,
    "troubles": [EVIL],
    "facts": {
        "agent_version": EVIL,
        "gpus": {"outcome": "some", "reason": EVIL, "gpus": [{"index": None, "uuid": None, "name": EVIL}]},
        "infiniband": {"ports": [{"hca": {"name": EVIL}, "state": EVIL, "rate": EVIL}]},
        "fabrics": [{"name": EVIL, "hcas": [], "trouble": EVIL}],
        "engines": [{"engine": EVIL, "executable": EVIL, "version": EVIL, "reason": EVIL}],
    },
}


@given(st.text())
def test_every_text_is_one_printable_line(text: str) -> None:
    assert printable_text(text).isprintable()
    assert printable([{text: (text, 1, None)}]) == [{printable_text(text): [printable_text(text), 1, None]}]


@given(st.text())
def test_json_stays_the_same_json(text: str) -> None:
    for is_ascii in (True, False):
        assert json.loads(printable_layout(json.dumps({"x": text}, indent=2, ensure_ascii=is_ascii))) == {"x": text}


def test_a_nodes_facts_add_no_line_and_no_escape_sequence() -> None:
    lines = render_nodes([NODE]).split("\n")
    assert len(lines) == 2
    shown = render_node(printable(NODE)).split("\n")
    assert len(shown) == len(render_node(json.loads(json.dumps(NODE).replace(json.dumps(EVIL), '"x"'))).split("\n"))
    assert all(line.isprintable() for line in (*lines, *shown))


def test_a_nodes_report_adds_no_line() -> None:
    report = EngineReport("vllm", EVIL, EVIL, EVIL, Outcome.UNCHECKED, EVIL, (EVIL,))
    lines = rendered_report("gpu1", report, True).split("\n")
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


def test_a_column_is_as_wide_as_what_is_shown() -> None:
    assert render_table(("A", "B"), [("\n", "b")]) == "A   B\n\\n  b"


@pytest.mark.parametrize("words", ["engines --json", "engines", "completion bash", "ca list --dir ca", "--help"])
def test_what_cannot_be_printed_is_one_line(tmp_path: Path, words: str) -> None:
    subprocess.run([LLMGW, "ca", "init", "--dir", tmp_path / "ca"], check=True, capture_output=True, timeout=60)
    command = f"{LLMGW} {words} > /dev/full"
    ended = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (2, "llmgw: cannot print: No space left on device\n")
    piped = f"{LLMGW} {words} | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["/bin/bash", "-c", piped], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "error", [NotReached("away\x1b[2J"), NotAnswered("away"), ExceptionGroup("", [NotReached("a")])]
)
def test_a_watch_outlives_a_control_plane_that_is_away(error: Exception) -> None:
    def render() -> str:
        raise error

    said = _rendered(render)
    assert said.startswith("not reached: a")
    assert said.isprintable()


def test_a_watch_does_not_hide_a_mistake_of_ours() -> None:
    def render() -> str:
        raise ExceptionGroup("", [NotReached("a"), KeyError("b")])

    with pytest.raises(ExceptionGroup):
        _rendered(render)

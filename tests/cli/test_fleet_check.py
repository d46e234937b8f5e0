"""What is made of the reports of many nodes."""

from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.cli import fleet_check
from llmgw_core.cli.context import Context
from llmgw_core.cli.fleet import render_node, render_nodes
from llmgw_core.cli.fleet_check import NodeReport, parse_report, render_drift
from llmgw_core.errors import LlmgwError
from llmgw_core.plan.engine_check import DryRun, EngineReport, FlagReport, Outcome
from llmgw_core.plan.plain_report import plain_report
from llmgw_core.plan.verdict import Verdict


def a_report(version: str | None = "0.32.0", outcome: Outcome = Outcome.ACCEPTED) -> EngineReport:
    return EngineReport("vllm", "/opt/vllm", version, "ran vllm serve --help=all", outcome)


FULL = EngineReport(
    "vllm",
    None,
    None,
    "nothing",
    Outcome.FINDINGS,
    "why",
    ("a warning",),
    tuple(FlagReport("--x", "head", "llmgw", verdict, "detail", ("--y",)) for verdict in Verdict),
    (DryRun("head", "llmgw", None), DryRun("worker", "p", ("no",))),
)


@pytest.mark.parametrize("report", [a_report(), a_report(None), FULL])
def test_a_report_comes_back_from_a_node_as_it_was(report: EngineReport) -> None:
    assert parse_report(plain_report(report), "gpu1") == report


def test_a_newer_agents_report_is_read() -> None:
    assert parse_report({**plain_report(FULL), "new": 1}, "gpu1") == FULL


@pytest.mark.parametrize("plain", [None, {}, [], {**plain_report(FULL), "outcome": "perhaps"}])
def test_what_is_no_report_is_one_line(plain: object) -> None:
    with pytest.raises(
        LlmgwError, match=r"^gpu1: its report cannot be read \(.*\); is its agent of another release\?$"
    ):
        parse_report(plain, "gpu1")


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_value_is_a_report_or_one_line(plain: object) -> None:
    with pytest.raises(LlmgwError):
        parse_report(plain, "gpu1")


def test_nodes_that_are_alike_are_one_line() -> None:
    found = [NodeReport(name, a_report(), "ab" * 32) for name in ("gpu1", "gpu2")]
    assert render_drift("vllm", found) == "2 nodes alike: vllm 0.32.0, accepted"


def test_nodes_that_differ_are_a_table_with_the_most_common_first() -> None:
    found = [
        NodeReport("gpu1", a_report("0.31.0"), "cd" * 32),
        NodeReport("gpu2", a_report(), "ab" * 32),
        NodeReport("gpu3", a_report(), "ab" * 32),
        NodeReport("gpu4", a_report(), "ef" * 32),
        NodeReport("gpu5", a_report(None, Outcome.UNCHECKED), ""),
    ]
    assert render_drift("vllm", found).splitlines() == [
        "the nodes differ in vllm:",
        "VERSION  HELP          OUTCOME    COUNT  NODES",
        "0.32.0   abababababab  accepted   2      gpu2, gpu3",
        "0.31.0   cdcdcdcdcdcd  accepted   1      gpu1",
        "0.32.0   efefefefefef  accepted   1      gpu4",
        "unknown  unknown       unchecked  1      gpu5",
    ]


def test_the_way_out_on_a_node_is_the_agents(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = evolve(
        a_report(None, Outcome.UNCHECKED),
        executable=None,
        reason="engine not found: no vllm is in PATH or beside llmgw",
    )
    nodes = [{"name": "gpu1", "state": "online", "facts": None}]
    monkeypatch.setattr(fleet_check, "ask", lambda _, what, **__: nodes if what == "nodes" else plain_report(absent))
    monkeypatch.setattr(fleet_check, "ask_each", lambda *_: [plain_report(absent)])
    context = Context(Path("/none"), None, None)
    assert fleet_check.check_node(context, "vllm", "gpu1", as_json=False, verbose=False) == 2
    assert fleet_check.check_all_nodes(context, "vllm", as_json=True, verbose=False) == 2
    printed = capsys.readouterr().out
    assert "--executable" not in printed
    assert printed.count("beside llmgw; where it is, `[engines]` in that node's agent.toml says, or `llmgw agent") == 2


def test_an_engine_that_is_not_there_is_not_among_a_nodes_verdicts() -> None:
    facts = {
        "engines": [{"engine": "sglang", "executable": None, "outcome": "unchecked", "reason": "engine not found: no"}]
    }
    times = {"first_seen": 0.0, "last_seen": 0.0, "days_left": 9, "troubles": []}
    node = {"name": "gpu1", "state": "online", "address": "a", "facts": facts, **times}
    assert "sglang" not in render_nodes([node])
    assert "engine      sglang is not installed: no; where it is, `[engines]`" in render_node(node)

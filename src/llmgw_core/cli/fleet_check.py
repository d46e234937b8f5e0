"""`llmgw ctl engine-check ENGINE --node NODE` and `--all-nodes`: the check as each node's agent makes it, now.

A node that does not answer is one that could not be checked; drift is shown over those that did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from llmgw_core.cli.asking import ask, ask_each
from llmgw_core.cli.engine_report import WAY_ON_A_NODE, exit_code, render_report, with_way_out
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable
from llmgw_core.cli.table import render_table
from llmgw_core.errors import LlmgwError
from llmgw_core.plan.engine_check import EngineReport, Outcome
from llmgw_core.plan.plain_report import plain_report

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context

_DIGEST_CHARACTERS = 12


@frozen
class NodeReport:
    """What one node's agent found."""

    node: str
    report: EngineReport
    help_digest: str
    """Of the flags that this engine's help documents; empty where it is not known."""


def parse_report(plain: object, node: str) -> EngineReport:
    """What `plain_report` gave at the other end; raises where a newer or older agent means something else."""
    from cattrs import Converter

    try:
        return Converter().structure(plain, EngineReport)
    except Exception as error:
        kind = type(error).__name__
        raise LlmgwError(f"{node}: its report cannot be read ({kind}); is its agent of another release?") from error


def check_node(context: Context, engine: str, node: str, *, as_json: bool, verbose: bool) -> int:
    """The exit code, once the report is shown."""
    report = with_way_out(parse_report(ask(context, "engine-check", node=node, engine=engine), node), WAY_ON_A_NODE)
    show(_json(node, report) if as_json else _rendered(node, report, verbose))
    return exit_code([report])


def check_all_nodes(context: Context, engine: str, *, as_json: bool, verbose: bool) -> int:
    """As `check_node` for every node that is online, with what differs between them at the end."""
    nodes: list[dict[str, Any]] = ask(context, "nodes")
    online = [node["name"] for node in nodes if node["state"] == "online"]
    others = [f"{node['name']} ({node['state']})" for node in nodes if node["state"] != "online"]
    if others:
        click.echo(f"llmgw: not asked: {', '.join(others)}", err=True)
    if not online:
        raise LlmgwError("no node is online; `llmgw ctl nodes` says why")
    answers = ask_each(context, [("engine-check", {"node": name, "engine": engine}) for name in online])
    # Their inventories once more: a check may have been the first to see a new engine.
    facts = {node["name"]: node["facts"] or {} for node in ask(context, "nodes")}
    found = [_node_report(name, engine, answer, facts) for name, answer in zip(online, answers, strict=True)]
    if as_json:
        show(json.dumps([{"node": each.node, **plain_report(each.report)} for each in found], indent=2))
    else:
        shown = [_rendered(each.node, each.report, verbose) for each in found]
        show("\n\n".join([*shown, render_drift(engine, found)]))
    return exit_code([each.report for each in found])


def _rendered(node: str, report: EngineReport, verbose: bool) -> str:
    """What a node wrote, one line for each of its texts."""
    return f"{node}: {render_report(parse_report(printable(plain_report(report)), node), verbose=verbose)}"


def _json(node: str, report: EngineReport) -> str:
    return json.dumps({"node": node, **plain_report(report)}, indent=2)


def _node_report(name: str, engine: str, answer: Any, facts: Mapping[str, Any]) -> NodeReport:
    try:
        if isinstance(answer, LlmgwError):
            raise answer
        report = with_way_out(parse_report(answer, name), WAY_ON_A_NODE)
    except LlmgwError as error:
        report = EngineReport(engine, None, None, "nothing", Outcome.UNCHECKED, str(error))
    return NodeReport(name, report, _digest(report, facts.get(name, {}).get("engines", ())))


def _digest(report: EngineReport, engines: Sequence[Mapping[str, Any]]) -> str:
    for each in engines:
        same = (each.get("engine"), each.get("executable"), each.get("version"))
        if same == (report.engine, report.executable, report.engine_version):
            return str(each.get("help_digest") or "")
    return ""


def render_drift(engine: str, found: Sequence[NodeReport]) -> str:
    """Nodes by version and help where they differ, the most common first; one line where they do not."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        version = each.report.engine_version or "unknown"
        key = (version, each.help_digest[:_DIGEST_CHARACTERS] or "unknown", each.report.outcome.value)
        groups.setdefault(key, []).append(each.node)
    if len(groups) == 1:
        ((version, _, outcome),) = groups
        return f"{len(found)} nodes alike: {engine} {version}, {outcome}"
    rows = [
        (*key, str(len(nodes)), ", ".join(nodes))
        for key, nodes in sorted(groups.items(), key=lambda each: -len(each[1]))
    ]
    header = ("VERSION", "HELP", "OUTCOME", "COUNT", "NODES")
    return f"the nodes differ in {engine}:\n{render_table(header, rows)}"

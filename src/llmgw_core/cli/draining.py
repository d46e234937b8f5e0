"""`llmgw ctl drain|undrain|rollout|rollback`: work is moved without an outage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.asking import Patience, ask
from llmgw_core.cli.fleet import as_json_option
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.cli.table import render_table
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context

FOLLOW_S = 1.0
nodes_argument = click.argument("nodes", nargs=-1, required=True)


class Blocked(LlmgwError):
    """A drain that cannot go on by itself."""


@click.command()
@nodes_argument
@click.option("--plan", "planned", is_flag=True, help="Show where each replica would go, and do nothing.")
@click.option("--allow-stop-first", "stop_first", is_flag=True, help="Where there is no room for both, stop first.")
@click.option("--max-parallel", type=click.IntRange(1, 1000), default=1, show_default=True, help="Moves at a time.")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Begin no move after this; those under way are finished.",
)
@click.option("--no-wait", is_flag=True, help="Do not watch. The drain goes on either way.")
@as_json_option
@click.pass_obj
def drain(
    context: Context,
    nodes: tuple[str, ...],
    planned: bool,
    stop_first: bool,
    max_parallel: int,
    deadline: float | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Empty NODES: each replica's replacement is ready before its original stops. They take nothing new until undrain.

    Ctrl-C ends the watching, not the drain. The exit code is 2 where a drain is blocked.
    """
    terms = {"stop_first": stop_first, "max_parallel": max_parallel, "deadline_s": float(deadline or 0.0)}
    if planned:
        moves = ask(context, "plan-drain", nodes=list(nodes), **terms)
        show(json.dumps(moves, indent=2) if as_json else render_plan(moves))
        return
    statuses = ask(context, "drain", nodes=list(nodes), **terms)
    if no_wait or as_json:
        show(json.dumps(statuses, indent=2) if as_json else render_drains(statuses))
        return
    _watch(context, nodes)


@click.command()
@nodes_argument
@click.pass_obj
def undrain(context: Context, nodes: tuple[str, ...]) -> None:
    """Let NODES take replicas again. A move whose original still serves is called off."""
    ask(context, "undrain", nodes=list(nodes))
    show(f"{', '.join(map(printable_text, nodes))} takes replicas again")


@click.command()
@as_json_option
@click.pass_obj
def drains(context: Context, as_json: bool) -> None:
    """List the nodes that drain, and what each replica there waits for."""
    found = ask(context, "drains")
    show(json.dumps(found, indent=2) if as_json else render_drains(found) if found else "no node drains")


@click.command()
@click.argument("model")
@click.option("--retry", is_flag=True, help="Try anew what failed.")
@click.option("--allow-stop-first", "stop_first", is_flag=True, help="Where there is no room for both, stop first.")
@as_json_option
@click.pass_obj
def rollout(context: Context, model: str, retry: bool, stop_first: bool, as_json: bool) -> None:
    """Show how far a change of MODEL is: its replicas are replaced one at a time, and not at all where one failed."""
    found = ask(context, "rollout", model=model, retry=retry, stop_first=stop_first)
    show(json.dumps(found, indent=2) if as_json else render_rollout(found))


@click.command()
@click.argument("model")
@click.pass_obj
def rollback(context: Context, model: str) -> None:
    """Run MODEL again as it ran before its last change, until the next apply."""
    found = ask(context, "rollback", model=model)
    show(f"{printable_text(model)} goes back to {', '.join(found['profiles'])}, until the next apply")


def render_plan(moves: list[dict[str, Any]]) -> str:
    if not moves:
        return "nothing runs there"
    rows = [(each["replica"], ", ".join(each["source"]), _target(each)) for each in moves]
    return render_table(("REPLICA", "FROM", "TO"), rows)


def _target(move: dict[str, Any]) -> str:
    if not move["target"]:
        return str(move["reason"])
    where = ", ".join(move["target"])
    return f"{where} (stops first)" if move["stop_first"] else where


def render_drains(statuses: list[dict[str, Any]]) -> str:
    lines = []
    for each in statuses:
        left = f", {len(each['left'])} left" if each["left"] and each["state"] != "drained" else ""
        terms = f" ({each['terms']})" if each["terms"] else ""
        lines.append(f"{each['node']}: {each['state']}{left}{terms}")
        lines += [f"  {replica}: {reason}" for replica, reason in each["left"].items()]
    return "\n".join(map(printable_text, lines))


def render_rollout(found: dict[str, Any]) -> str:
    replicas = found["replicas"]
    changed = sum(not each["outdated"] for each in replicas)
    back = ", rolled back" if found["rolled_back"] else ""
    lines = [
        f"{found['model']}: {changed} of {len(replicas)} replicas run as wanted ({', '.join(found['profiles'])}){back}"
    ]
    for each in replicas:
        state = "outdated" if each["outdated"] else "as wanted"
        moving = f", its replacement is on {each['replacement']}" if each["replacement"] else ""
        lines.append(f"  {each['id']}: {state}{moving}" + (f"; {each['blocked']}" if each["blocked"] else ""))
    return "\n".join(map(printable_text, lines))


def _watch(context: Context, nodes: tuple[str, ...]) -> None:
    """Say what changes, until every node is drained; raises `Blocked` when nothing more can move by itself."""
    import time

    told, patience = "", Patience()
    while True:
        statuses = patience.ask(context, "drains", nodes=list(nodes)) or []
        now = render_drains(statuses)
        if statuses and now != told:
            told = now
            if not show(now):
                return
        states = {each["state"] for each in statuses}
        if states and not states - {"drained", "not draining"}:
            return
        if states and not states - {"drained", "not draining", "blocked"}:
            raise Blocked("blocked, and goes on by itself when there is room; `llmgw ctl undrain` ends it")
        time.sleep(FOLLOW_S)

"""`llmgw ctl models|replicas|replica|logs`: what runs, and what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.asking import Patience, ask, watch
from llmgw_core.cli.filtered import none_of_model, none_with_labels, parse_labels
from llmgw_core.cli.fleet import WATCH_S, as_json_option, time_text, watch_option
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable, printable_text
from llmgw_core.cli.table import render_table

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context

FOLLOW_S = 1.0


@click.command()
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=parse_labels,
    help="Only models with this label.",
)
@as_json_option
@click.pass_obj
def models(context: Context, labels: dict[str, str], as_json: bool) -> None:
    """List the catalog's models, and how many of their replicas are ready."""
    desired = ask(context, "models")
    found = [each for each in desired if labels.items() <= each["labels"].items()]
    if as_json:
        show(json.dumps(found, indent=2))
    else:
        show(none_with_labels(labels, len(desired)) if desired and not found else render_models(found))


def render_models(found: list[dict[str, Any]]) -> str:
    if not found:
        return "no model is desired; `llmgw ctl apply CATALOG` brings some"
    rows = [
        (
            each["name"],
            f"{each['ready']}/{each['wanted']}" + (" (scaled)" if each["scaled"] else ""),
            ", ".join(each["profiles"]),
            each["source"],
            ", ".join(f"{name}={value}" for name, value in each["labels"].items()) or "-",
            each["trouble"],
        )
        for each in found
    ]
    return render_table(("MODEL", "READY", "PROFILES", "SOURCE", "LABELS", "TROUBLE"), rows)


@click.command()
@click.option("--model", default="", help="Only of this model.")
@watch_option
@as_json_option
@click.pass_obj
def replicas(context: Context, model: str, watched: bool, as_json: bool) -> None:
    """List the replicas: state, nodes, and what is wrong."""
    if watched and as_json:
        raise click.UsageError("--watch is for people and --json for programs: give one")
    if watched:
        watch(WATCH_S, lambda: _rendered_replicas(context, model))
        return
    show(json.dumps(ask(context, "replicas", model=model), indent=2) if as_json else _rendered_replicas(context, model))


def _rendered_replicas(context: Context, model: str) -> str:
    found = ask(context, "replicas", model=model)
    if model and not found:
        return none_of_model(model, [each["name"] for each in ask(context, "models")])
    return render_replicas(found)


def render_replicas(found: list[dict[str, Any]]) -> str:
    if not found:
        return "no replica is wanted, and none runs"
    rows = [
        (
            each["id"],
            each["state"],
            str(each["generation"]),
            each["profile"] or "-",
            ", ".join(each["nodes"]) or "-",
            each["address"] or "-",
            str(each["failures"]),
            each["reason"],
        )
        for each in found
    ]
    return render_table(("REPLICA", "STATE", "GEN", "PROFILE", "NODES", "ADDRESS", "FAILED", "REASON"), rows)


@click.command()
@click.argument("replica")
@as_json_option
@click.pass_obj
def replica(context: Context, replica: str, as_json: bool) -> None:
    """Show all that is known of REPLICA: its shards, their command lines, and its failures."""
    found = ask(context, "replica", replica=replica)
    show(json.dumps(found, indent=2) if as_json else render_replica(_fit(found)))


def _fit(found: dict[str, Any]) -> dict[str, Any]:
    """Printable; the lines of a log's end stay lines."""
    fit: dict[str, Any] = printable(found)
    for which in ("replacement_failure", "first_failure", "last_failure"):
        if found[which] is not None:
            lines = str(found[which].get("log_tail", "")).splitlines()
            fit[which]["log_tail"] = "\n".join(map(printable_text, lines))
    return fit


def render_replica(found: dict[str, Any]) -> str:
    place = f", profile {found['profile']}" if found["profile"] else ""
    lines = [f"{found['id']}: {found['state']}, generation {found['generation']}{place}"]
    lines += [f"  why         {found['reason']}"] if found["reason"] else []
    lines += [f"  address     {found['address']}"] if found["address"] else []
    lines += [f"  rendezvous  {found['rendezvous']}"] if found["rendezvous"] else []
    for shard in found["shards"]:
        lines += _shard_lines(shard)
    lines += ["  beside it, while it moves:"] if found["beside"] else []
    for shard in found["beside"]:
        lines += _shard_lines(shard)
    for which in ("replacement", "first", "last"):
        failure = found[f"{which}_failure"]
        if failure is not None and not (which == "last" and failure == found["first_failure"]):
            lines += _failure_lines(which, failure)
    return "\n".join(lines)


def _shard_lines(shard: dict[str, Any]) -> list[str]:
    import shlex

    told = f": {shard['reason']}" if shard["reason"] else ""
    pid = f", pid {shard['pid']}" if shard["pid"] else ""
    lines = [f"  shard {shard['rank']}     {shard['phase']} on {shard['node']}, port {shard['port']}{pid}{told}"]
    lines += [f"    GPUs      {', '.join(shard['gpus'])}"] if shard["gpus"] else []
    lines += [f"    adapters  {', '.join(shard['hcas'])}"] if shard["hcas"] else []
    lines += [f"    engine    {shard['engine']}"] if shard["engine"] else []
    lines += [f"    argv      {shlex.join(shard['argv'])}"] if shard["argv"] else []
    return lines


def _failure_lines(which: str, failure: dict[str, Any]) -> list[str]:
    import shlex

    where = f" on {failure['node']}" if failure["node"] else ""
    ended = f" ({failure['exit']})" if failure.get("exit") else ""
    head = f"  {which} failure: {time_text(failure['at'])}, generation {failure['generation']}, rank {failure['rank']}"
    lines = [f"{head}{where}", f"    {failure['kind']}: {failure['reason']}{ended}"]
    lines += [f"    engine    {failure['engine_version']}"] if failure.get("engine_version") else []
    lines += [f"    argv      {shlex.join(failure['argv'])}"] if failure.get("argv") else []
    return lines + [f"    | {line}" for line in failure.get("log_tail", "").splitlines()]


@click.command()
@click.argument("replica")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Of which shard; 0 is the head.")
@click.option("--lines", type=click.IntRange(0, 10_000), default=100, show_default=True, help="How many, from the end.")
@click.option("--first-failure", is_flag=True, help="The kept log of the first failure of a loop.")
@click.option("--follow", is_flag=True, help="Go on with what comes, over every new attempt.")
@click.pass_obj
def logs(context: Context, replica: str, rank: int, lines: int, first_failure: bool, follow: bool) -> None:
    """Print what the engine of REPLICA wrote."""
    import time

    if follow and first_failure:
        raise click.UsageError("the log of a failure that is over has nothing to follow")
    question: dict[str, Any] = {"replica": replica, "rank": rank, "first_failure": first_failure}
    cursor, told, patience = "", "", Patience()
    while True:
        try:
            read = ask(context, "log", **question, lines=lines, cursor=cursor)
        except Exception as error:
            if not follow or not cursor:
                raise
            told = _say_once(told, str(patience.bear(error)))
        else:
            told, cursor, patience.refusals = "", read["cursor"], 0
            if read["text"] and not show(read["text"].rstrip("\n")):
                return
        if not follow:
            return
        time.sleep(FOLLOW_S)


def _say_once(told: str, reason: str) -> str:
    if reason != told:
        click.echo(f"llmgw: {printable_text(reason)}", err=True)
    return reason

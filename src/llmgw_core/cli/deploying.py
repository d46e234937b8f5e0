"""`llmgw ctl apply|plan|scale|explain`: what is desired, and what becomes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.asking import ask, ask_all
from llmgw_core.cli.fleet import as_json_option
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from collections.abc import Container

    from llmgw_core.cli.context import Context

FOLLOW_S = 1.0
MOST_NAMED = 10
catalog_argument = click.argument("catalog", type=click.Path(path_type=Path))


@click.command()
@catalog_argument
@click.option("--wait", is_flag=True, help="Show how the replicas come up, and end when gateways lead to all.")
@click.option(
    "--within",
    type=click.FloatRange(min=0, min_open=True),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="With --wait: the longest to wait; then the exit code is 2.",
)
@click.pass_obj
def apply(context: Context, catalog: Path, wait: bool, within: float) -> None:
    """Make CATALOG, a TOML file, what is desired: all of it, in place of what was before."""
    changes = ask(context, "apply", name=str(catalog), text=_read(catalog))
    show(f"applied {catalog}\n{render_changes(changes)}")
    if wait:
        _wait_until_ready(context, within)


@click.command()
@catalog_argument
@as_json_option
@click.pass_obj
def plan(context: Context, catalog: Path, as_json: bool) -> None:
    """Show what applying CATALOG would change. Nothing is done."""
    changes = ask(context, "plan", name=str(catalog), text=_read(catalog))
    show(json.dumps(changes, indent=2) if as_json else render_changes(changes))


def _parse_replicas(context: click.Context, parameter: click.Parameter, given: str) -> int:
    """How many. What else begins with a dash is an option that is not there."""
    from llmgw_core.model.catalog import MOST_REPLICAS

    if not re.fullmatch(r"-?[0-9]{1,9}", given):
        if given.startswith("-"):
            raise click.NoSuchOption(given, ctx=context)
        raise click.BadParameter(f"expected a whole number, got {given!r}", context, parameter)
    if not 0 <= int(given) <= MOST_REPLICAS:
        raise click.BadParameter(f"expected 0 to {MOST_REPLICAS}, got {given}", context, parameter)
    return int(given)


# -1 is a number here, so click is not to look for an option of that name.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("model")
@click.argument("replicas", callback=_parse_replicas)
@click.pass_obj
def scale(context: Context, model: str, replicas: int) -> None:
    """Run so many REPLICAS of MODEL, until the next apply says otherwise."""
    ask(context, "scale", model=model, replicas=replicas)
    show(f"{printable_text(model)}: {replicas} wanted, until the next apply")


@click.command()
@click.argument("model")
@as_json_option
@click.pass_obj
def explain(context: Context, model: str, as_json: bool) -> None:
    """Say where MODEL could run, and of each node what speaks against it first."""
    found = ask(context, "explain", model=model)
    show(json.dumps(found, indent=2) if as_json else render_explanation(found))


def render_explanation(found: dict[str, Any]) -> str:
    lines = [f"{found['model']}: {found['ready']} of {found['wanted']} replicas are ready"]
    lines += [f"  {id} is {reason}" for id, reason in found["waiting"].items()]
    lines += [f"  {reason}" for reason in found["guarded"]]
    lines += [f"  draining: {', '.join(found['draining'])}"] if found["draining"] else []
    for profile in found["profiles"]:
        room = "has room for one more" if profile["has_room"] else profile["summary"]
        lines.append(f"profile {profile['profile']}: {room}")
        lines += [f"  {each['node']} {each['refusal'] or 'could take a shard'}" for each in profile["nodes"]]
    return "\n".join(map(printable_text, lines))


def render_changes(changes: list[dict[str, Any]]) -> str:
    if not changes:
        return "nothing changes"
    return "\n".join(printable_text(f"  {_change(each)}") for each in changes)


def _change(change: dict[str, Any]) -> str:
    return f"{change['kind']} {change['subject']}" + (f": {change['detail']}" if change["detail"] else "")


def _read(catalog: Path) -> str:
    """The text, after its mistakes would have been found here: the control plane looks again."""
    from llmgw_core.codec import parse_catalog, read_toml_text

    try:
        text = read_toml_text(catalog)
    except OSError as error:
        raise LlmgwError(f"cannot read {catalog}: {error.strerror}") from error
    parse_catalog(text, str(catalog))
    return text


def _wait_until_ready(context: Context, within_s: float) -> None:
    import time

    show(f"waiting up to {within_s:g} s until all is so; Ctrl-C ends the waiting, and nothing else")
    end = time.monotonic() + within_s
    told: set[str] = set()
    while True:
        models, replicas = ask_all(context, [("models", {}), ("replicas", {})])
        unsettled = find_unsettled(models, replicas)
        waiting = {without_countdown(line): line for line in unsettled.values()}
        news = [f"  {printable_text(line)}" for key, line in waiting.items() if key not in told]
        told = set(waiting)
        if news and not show("\n".join(news)):
            return
        if not waiting:
            show("all replicas are ready" if replicas else "nothing is wanted, and nothing runs")
            return
        if is_stuck(models, replicas):
            raise LlmgwError("the change cannot go on by itself; `llmgw ctl rollout MODEL` says what would help")
        if time.monotonic() > end:
            raise LlmgwError(f"not all was so within {within_s:g} s; still waited for: {_few(list(unsettled))}")
        time.sleep(FOLLOW_S)


def _few(names: list[str]) -> str:
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(printable_text, names[:MOST_NAMED])) + more


def without_countdown(line: str) -> str:
    """What counts as news: not that a second has passed."""
    return re.sub(r"\b\d+(?:\.\d+)? s\b", "… s", line)


def is_stuck(models: list[dict[str, Any]], replicas: list[dict[str, Any]]) -> bool:
    """Whether whatever is still to come waits for somebody to do something; what is to go, goes by itself."""
    desired = {each["name"] for each in models}
    unsettled = [each for each in replicas if not is_settled(each, desired)]
    return bool(unsettled) and all(each["blocked"] and each["model"] in desired for each in unsettled)


def is_settled(replica: dict[str, Any], desired: Container[str]) -> bool:
    """Whether it is as desired, and whoever asks a gateway may be sent there."""
    return bool(replica["routed"]) and not replica["outdated"] and replica["model"] in desired


def _tell_waited_for(replica: dict[str, Any], desired: Container[str]) -> str:
    """Of what the planner has not looked at yet, its reason would be the one of before."""
    if replica["model"] not in desired and replica["state"] != "stopping":
        return "it is to go, its model was removed"
    if replica["reason"]:
        return str(replica["reason"])
    return "how it is to run was changed" if replica["outdated"] else "not every gateway has been told"


def find_unsettled(models: list[dict[str, Any]], replicas: list[dict[str, Any]]) -> dict[str, str]:
    """A line for each replica, or model, that is still to become as desired.

    Right even before the planner has looked at what was applied.
    """
    desired = {each["name"] for each in models}
    unsettled = [each for each in replicas if not is_settled(each, desired)]
    lines = {each["id"]: f"{each['id']} is {each['state']}: {_tell_waited_for(each, desired)}" for each in unsettled}
    told = {each["model"] for each in unsettled}
    for each in models:
        if each["ready"] != each["wanted"] and each["name"] not in told:
            are = f"{each['ready']} replicas are" if each["ready"] != 1 else "1 replica is"
            lines[each["name"]] = f"{each['name']}: {are} ready, and {each['wanted']} wanted"
    return lines

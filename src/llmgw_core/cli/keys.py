"""`llmgw ctl keys` and `llmgw ctl gateways`: who may send requests, and who takes them."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.asking import ask, why_not_reached
from llmgw_core.cli.fleet import as_json_option, time_text
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.cli.table import render_table

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context

HEAR_S = 5.0
"""So long a gateway may take to hear of a key."""
_LOOK_EVERY_S = 0.1
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WHILE = re.compile(r"(\d{1,9})([smhd])")


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Of `30d`, `12h`, `45m`, `90s`."""
    if value is None:
        return None
    match = _WHILE.fullmatch(value)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{value!r} is no time: write 30d, 12h, 45m or 90s", ctx, param)
    return float(int(match[1]) * _UNITS_S[match[2]])


@click.group()
def keys() -> None:
    """Make, list and revoke the API keys of users."""


@keys.command(short_help="Make a key and print it, this once.")
@click.argument("name")
@click.option("--expires", callback=_seconds, metavar="DURATION", help="How long it is good: 30d, 12h.")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="A model that it may use. Without: all.")
@click.option("--rpm", type=click.IntRange(1, 1_000_000), help="Requests in a minute. Without: no limit.")
@click.option("--concurrent", type=click.IntRange(1, 1_000_000), help="Requests in flight. Likewise.")
@click.option("--force", is_flag=True, help="Take a MODEL that the catalog does not have.")
@as_json_option
@click.pass_obj
def create(
    context: Context,
    name: str,
    expires: float | None,
    models: tuple[str, ...],
    rpm: int | None,
    concurrent: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Make a key called NAME and print it, this once: only its hash is kept.

    It is good at every gateway when the command ends; one that takes over 5 s to hear of it is named.
    """
    limits = {"rpm": rpm or 0, "concurrent": concurrent or 0, "expires_s": float(expires or 0.0)}
    made = ask(context, "create-key", name=name, models=list(models), force=force, **limits)
    if as_json:
        show(json.dumps(made, indent=2))
    else:
        show(made["key"])
        click.echo(f"llmgw: {made['id']} is the key of {printable_text(name)}; it is never shown again", err=True)
    _wait_for_gateways(context, made, "refuses it")


@keys.command("list")
@as_json_option
@click.pass_obj
def list_keys(context: Context, as_json: bool) -> None:
    """List all keys that were ever made, the oldest first."""
    found = ask(context, "keys")
    if as_json:
        show(json.dumps(found, indent=2))
        return
    show(render_keys(found) if found else "there is no key; `llmgw ctl keys create NAME` makes one")


@keys.command()
@click.argument("key", metavar="ID|NAME")
@click.pass_obj
def revoke(context: Context, key: str) -> None:
    """Refuse a key from now on, at every gateway. There is no way back: make another one.

    A gateway that takes over 5 s to hear of it is named, and the exit code is 1.
    """
    revoked = ask(context, "revoke-key", key=key)
    show(printable_text(f"revoked {revoked['name']} ({revoked['id']})"))
    if not _wait_for_gateways(context, revoked, "takes it"):
        sys.exit(1)


def _wait_for_gateways(context: Context, key: dict[str, Any], meanwhile: str) -> bool:
    """Whether all go by what was changed about a key; who does not in time is named, and so is one that is gone."""
    import time

    version = key.get("version", 0)  # an older control plane says none
    end = time.monotonic() + HEAR_S
    try:
        while True:
            behind = [each for each in ask(context, "gateways", within_s=HEAR_S) if each["version"] < version]
            if not behind or time.monotonic() > end:
                break
            time.sleep(_LOOK_EVERY_S)
    except Exception as error:
        said = printable_text(why_not_reached(error))
        click.echo(f"llmgw: not seen whether gateways have heard of it: {said}", err=True)
        return False
    for each in behind:
        said = f"{_name(each)} has not heard of it and {meanwhile} until then: see `llmgw ctl gateways`"
        click.echo(f"llmgw: {said}", err=True)
    return not behind


def render_keys(found: list[dict[str, Any]]) -> str:
    header = ("ID", "NAME", "STATE", "CREATED", "BY", "EXPIRES", "MODELS", "RPM", "CONCURRENT")
    return render_table(header, [_row(each) for each in found])


def _row(key: dict[str, Any]) -> tuple[str, ...]:
    return (
        key["id"],
        key["name"],
        key["state"],
        time_text(key["created"]),
        key["by"],
        time_text(key["expires"]) if key["expires"] is not None else "never",
        ", ".join(key["models"]) or "all",
        str(key["requests_per_minute"] or "-"),
        str(key["concurrent"] or "-"),
    )


@click.command()
@as_json_option
@click.pass_obj
def gateways(context: Context, as_json: bool) -> None:
    """List the gateways: how recent the table of each is, what it still has elsewhere, days left on the certificate.

    FROM: where its link comes from. TABLE: whether its routes are the latest ones, or for how long they are not.
    LINGERING: requests that it still has at replicas to which its table leads no more; a planned stop waits for them.
    """
    found = ask(context, "gateways")
    if as_json:
        show(json.dumps(found, indent=2))
        return
    none = "no gateway is connected; start one with `llmgw gateway`"
    show(render_gateways(found) if found else none)


def render_gateways(found: list[dict[str, Any]]) -> str:
    header = ("GATEWAY", "STATE", "FROM", "TABLE", "LINGERING", "CERT", "SINCE")
    return render_table(header, [_gateway(each) for each in found])


def _gateway(gateway: dict[str, Any]) -> tuple[str, ...]:
    lingering = [f"{each['requests']} at {each['replica']}" for each in gateway["lingering"]]
    more = f", {len(lingering) - 3} more" if len(lingering) > 3 else ""
    return (
        _name(gateway),
        gateway["state"],
        gateway["address"] or "-",
        _table(gateway),
        ", ".join(lingering[:3]) + more or "-",
        f"{gateway['days_left']} d" if gateway["days_left"] is not None else "-",
        time_text(gateway["since"]) if gateway["since"] else "-",
    )


def _name(gateway: dict[str, Any]) -> str:
    return printable_text(gateway["name"] + (f"/{gateway['instance'][:8]}" if gateway["instance"] else ""))


def _table(gateway: dict[str, Any]) -> str:
    """Versions are milliseconds since 1970 of their tables."""
    if not gateway["version"]:
        return "none taken"
    if not gateway["current"]:
        return "from before; there is no other now"
    older_s = (gateway["current"] - gateway["version"]) / 1000
    if older_s > 0 and gateway.get("behind_s") is not None:
        return f"behind for {_a_while(gateway['behind_s'])}"
    if older_s == 0:
        return "current"
    return f"{'behind' if older_s > 0 else 'ahead'} by {_a_while(abs(older_s))}"


def _a_while(seconds: float) -> str:
    """`0.9 s`, `95 s`, `4 min`, `30 h`, `9 d`."""
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s"
    for unit, length, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"

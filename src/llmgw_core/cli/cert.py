"""`llmgw ctl cert`: revocation, which acts now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from llmgw_core.cli.asking import ask
from llmgw_core.cli.output import show
from llmgw_core.cli.table import render_table

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context

serial_option = click.option("--serial", default="", help="One certificate only; `llmgw ca list` shows the serials.")
role_option = click.option(
    "--role", type=click.Choice(("node", "operator", "gateway")), help="Needed where several have this NAME."
)


@click.group()
def cert() -> None:
    """Revoke certificates, take it back, and list what is revoked."""


@cert.command(short_help="Refuse the certificates of NAME.")
@click.argument("name", default="")
@serial_option
@role_option
@click.option("--reason", default="", help="For the record.")
@click.pass_obj
def revoke(context: Context, name: str, serial: str, role: str | None, reason: str) -> None:
    """Refuse every certificate that NAME has shown, close its link now, and refuse the next."""
    _one_of(name, serial)
    for revoked in ask(context, "revoke", name=name, serial=serial, role=role or "", reason=reason):
        show(f"revoked {revoked}")


@cert.command()
@click.argument("name", default="")
@serial_option
@role_option
@click.pass_obj
def unrevoke(context: Context, name: str, serial: str, role: str | None) -> None:
    """Take a revocation back."""
    _one_of(name, serial)
    for accepted in ask(context, "unrevoke", name=name, serial=serial, role=role or ""):
        show(f"no longer revoked {accepted}")


@cert.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_revoked(context: Context, as_json: bool) -> None:
    """List what is revoked."""
    found = ask(context, "revocations")
    if as_json:
        show(json.dumps(found, indent=2))
        return
    rows = [(each["serial"], each["name"] or "-", each["by"], each["reason"] or "-") for each in found]
    show(render_table(("SERIAL", "NAME", "BY", "REASON"), rows) if rows else "nothing is revoked")


def _one_of(name: str, serial: str) -> None:
    if bool(name) == bool(serial):
        raise click.UsageError("give a NAME, or --serial")

"""`llmgw ca`: the authority on this host, and the certificates that it issues."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from llmgw_core.cli.output import show
from llmgw_core.cli.table import render_table
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from datetime import datetime

    from llmgw_core.model.identity import Identity
    from llmgw_core.pki.authority import Authority, Issued
    from llmgw_core.pki.certificate import Order
    from llmgw_core.pki.record import Record

ROLES = ("node", "operator", "gateway", "server")
NEXT_STEPS = {
    "node": "take the three files to {name}, the key over ssh only, and name them in the agent's settings",
    "operator": "take the three files to the operator, the key over ssh only, and name them in the context file",
    "gateway": "take the three files to the gateway's host, the key over ssh only, and name them in its settings",
    "server": "take the three files to the control plane's host, the key over ssh only, and start llmgw control",
}

Command = TypeVar("Command", bound=Callable[..., Any])

with_directory: Callable[[Command], Command] = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="LLMGW_CA_DIR",
    default=lambda: Path.home() / ".llmgw" / "ca",
    show_default="$LLMGW_CA_DIR, else ~/.llmgw/ca",
    help="The authority's directory.",
)
with_days: Callable[[Command], Command] = click.option(
    "--days", type=int, default=90, show_default=True, help="How long the certificate is good."
)
with_out: Callable[[Command], Command] = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default="this directory",
    help="Where to write NAME.crt, NAME.key and ca.crt.",
)
with_force: Callable[[Command], Command] = click.option("--force", is_flag=True, help="Replace files that exist.")


@click.group()
def ca() -> None:
    """Make an authority, and issue the certificates by which processes know each other."""


@ca.command(short_help="Make the authority on this host.")
@with_directory
@click.option("--name", default="llmgw-authority", show_default=True, help="The authority's own name.")
@click.option(
    "--days", type=int, default=3650, show_default=True, help="How long it is good; all it issues ends with it."
)
@click.option("--force", is_flag=True, help="Replace an authority that exists: its certificates then no longer count.")
def init(directory: Path, name: str, days: int, force: bool) -> None:
    """Make the authority on this host."""
    from llmgw_core.pki.authority import Authority
    from llmgw_core.pki.files import FileExists
    from llmgw_core.pki.validity import describe_time

    try:
        authority = Authority.create(directory, _now(), name=name, days=days, force=force)
    except FileExists as error:
        cost = "every certificate that it has issued counts no more, and every machine needs new files"
        raise LlmgwError(
            f"{error}, and from then on {cost}; `llmgw ca issue` goes on with the one that is there"
        ) from None
    show(f"made the authority {name} in {directory}, good until {describe_time(_end(authority))}")
    show(f"  {directory / 'ca.crt'}  the root that every machine trusts")
    show(f"  {directory / 'ca.key'}  its key: keep it on this host, and keep a copy where nobody else reads it")
    show("next: llmgw ca issue server NAME --dns NAME --ip ADDRESS, for the host of the control plane")


@ca.command(short_help="Issue a certificate and its key.")
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name")
@click.option("--dns", multiple=True, metavar="NAME", help="A name by which the server is reached. May be repeated.")
@click.option("--ip", "ips", multiple=True, metavar="ADDRESS", help="An address of the server. May be repeated.")
@with_days
@with_out
@with_force
@with_directory
def issue(
    role: str, name: str, dns: tuple[str, ...], ips: tuple[str, ...], days: int, out: Path, force: bool, directory: Path
) -> None:
    """Issue a certificate and its key to a node, an operator, a gateway or a server.

    NAME is the host name of a node or a server: a DNS label, the same string everywhere.
    """
    from llmgw_core.model.identity import Identity, Role
    from llmgw_core.pki.authority import Authority
    from llmgw_core.pki.certificate import Order
    from llmgw_core.pki.names import parse_names

    order = Order(Identity(Role(role), name), parse_names(dns, ips), days)
    _issue(Authority.open(directory), order, out, force)


@ca.command(short_help="Issue a certificate again, with a new key.")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), help="Needed where NAME has certificates of several roles.")
@with_days
@with_out
@with_force
@with_directory
def renew(name: str, role: str | None, days: int, out: Path, force: bool, directory: Path) -> None:
    """Issue NAME's latest certificate again, with a new key and the same names and addresses."""
    from llmgw_core.pki.authority import Authority
    from llmgw_core.pki.certificate import Order

    authority = Authority.open(directory)
    identity = _known_identity(authority, name, role)
    _issue(authority, Order(identity, authority.latest(identity).names, days), out, force)


@ca.command("list", short_help="List what was issued, and what is left of it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_directory
def list_issued(as_json: bool, directory: Path) -> None:
    """List what the authority has issued, oldest first, and how long each certificate is still good."""
    from llmgw_core.pki.authority import Authority, describe_authority_end
    from llmgw_core.pki.validity import describe_left, describe_time

    authority, now = Authority.open(directory), _now()
    if as_json:
        show(json.dumps(_plain(authority, now), indent=2))
        return
    if records := authority.issued():
        show(render_table(("SERIAL", "ROLE", "NAME", "UNTIL", "LEFT"), [_row(each, now) for each in records]))
    else:
        show("nothing issued yet; llmgw ca issue --help says how")
    end = _end(authority)
    show(f"the authority itself: until {describe_time(end)}, {describe_left(end, now)}")
    _warn([describe_authority_end(authority.certificate, now)])


def _issue(authority: Authority, order: Order, out: Path, force: bool) -> None:
    from llmgw_core.pki.delivery import Delivery, prepare_delivery, write_delivery

    delivery = Delivery(out, order.identity.name)
    prepare_delivery(delivery, authority, force=force)
    issued = authority.issue(order, _now())
    paths = write_delivery(delivery, authority, issued, force=force)
    _tell(order, issued, paths)
    _warn(issued.warnings)


def _tell(order: Order, issued: Issued, paths: Sequence[Path]) -> None:
    from llmgw_core.pki.validity import describe_time

    identity = order.identity
    valid_for = f", for {order.names}" if order.names else ""
    until = describe_time(issued.record.not_after)
    show(f"issued {identity}{valid_for}, good until {until}, serial {issued.record.serial}")
    for path in paths:
        show(f"  {path}")
    show(f"next: {NEXT_STEPS[identity.role.value].format(name=identity.name)}")


def _known_identity(authority: Authority, name: str, role: str | None) -> Identity:
    from llmgw_core.model.identity import Identity, Role

    if role is not None:
        return Identity(Role(role), name)
    known = dict.fromkeys(each.identity for each in authority.issued() if each.identity.name == name)
    if not known:
        raise click.UsageError(f"no certificate was issued to {name}; `llmgw ca list` shows those that were")
    if len(known) > 1:
        roles = " and ".join(each.role.value for each in known)
        raise click.UsageError(f"{name} has certificates as {roles}; say which with --role")
    return next(iter(known))


def _row(record: Record, now: datetime) -> tuple[str, ...]:
    from llmgw_core.pki.validity import describe_left, describe_time

    until, left = describe_time(record.not_after), describe_left(record.not_after, now)
    return record.serial, record.identity.role.value, record.identity.name, until, left


def _plain(authority: Authority, now: datetime) -> dict[str, Any]:
    from llmgw_core.pki.record import plain_record
    from llmgw_core.pki.validity import days_left, describe_time

    end = _end(authority)
    return {
        "authority": {"not_after": describe_time(end), "days_left": days_left(end, now)},
        "issued": [{**plain_record(each), "days_left": days_left(each.not_after, now)} for each in authority.issued()],
    }


def _end(authority: Authority) -> datetime:
    return authority.certificate.not_valid_after_utc


def _warn(warnings: Sequence[str | None]) -> None:
    for warning in warnings:
        if warning is not None:
            click.echo(f"llmgw: warning: {warning}", err=True)


def _now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC)  # noqa: TID251 - the edge, from which `now` is passed on

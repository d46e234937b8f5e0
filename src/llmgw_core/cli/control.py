"""`llmgw control`: the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgw_core.cli.listening import parse_place

if TYPE_CHECKING:
    from llmgw_core.control.app import Embedded

_seconds = click.FloatRange(0.05, 7 * 24 * 3600.0)
"""From what a loop can keep to a week; not a number is outside."""


@click.command()
@click.option("--identity", required=True, metavar="PREFIX", help="PREFIX.crt, PREFIX.key and ca.crt beside them.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/llmgw/control"),
    show_default=True,
    help="Where the store is. One control plane for each.",
)
@click.option("--listen", default=":7443", show_default=True, metavar="[ADDRESS]:PORT")
@click.option(
    "--ca-dir",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The authority's directory, if it is on this machine: certificates are then renewed over the link.",
)
@click.option("--heartbeat", type=_seconds, default=5.0, show_default=True, metavar="SECONDS", help="Of each agent.")
@click.option(
    "--lost-after",
    type=_seconds,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="When a silent node is lost.",
)
@click.option(
    "--soak",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a replacement must have been ready before its original stops.",
)
@click.option("--gateway", metavar="[ADDRESS]:PORT", help="Run a gateway in this process too, for users to call there.")
@click.option("--gateway-no-auth", is_flag=True, help="Let everybody in there; without it users need a key.")
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
def control(
    identity: str,
    state: Path,
    listen: str,
    ca_dir: Path | None,
    heartbeat: float,
    lost_after: float,
    soak: float,
    gateway: str | None,
    gateway_no_auth: bool,
    log_json: bool,
) -> None:
    """Run the control plane: it decides, and agents and operators call it."""
    import trio

    from llmgw_core.cli.identity import identity_files
    from llmgw_core.control.app import ControlSettings, run_control
    from llmgw_core.log import set_up_logs
    from llmgw_core.plan.liveness import Pace

    host, port = parse_place("--listen", listen)
    set_up_logs(as_json=log_json)
    pace = Pace(heartbeat, lost_after)
    settings = ControlSettings(state, identity_files(identity), host, port, ca_dir, pace, soak)
    embedded = _embedded(gateway, gateway_no_auth) if gateway is not None else None
    trio.run(run_control, settings, embedded)


def _embedded(listen: str, no_auth: bool) -> Embedded:
    from functools import partial

    from llmgw_core.gateway.client import Client
    from llmgw_core.gateway.embedded import run_embedded
    from llmgw_core.gateway.listener import open_listeners
    from llmgw_core.gateway.settings import DataSettings

    (sockets,) = open_listeners(*parse_place("--gateway", listen), processes=1)
    doors = [(each, Client) for each in sockets]
    return partial(run_embedded, doors, DataSettings(authenticates=not no_auth))

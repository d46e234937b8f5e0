"""`llmgw units`: the systemd units that this package brings."""

from __future__ import annotations

import click

from llmgw_core.cli.output import show


@click.command()
@click.argument("name", type=click.Choice(["agent", "control", "gateway"]))
def units(name: str) -> None:
    """Print the systemd unit of the agent, the control plane or a gateway; its first lines say where it goes."""
    from llmgw_core.onboard.unit import packaged_unit

    show(packaged_unit(f"llmgw-{name}.service").rstrip("\n"))

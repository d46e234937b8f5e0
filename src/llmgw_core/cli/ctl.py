"""`llmgw ctl`: an operator's commands."""

from __future__ import annotations

import click

from llmgw_core.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "engine-check": (
            "llmgw_core.cli.engine_check:engine_check",
            "Say whether an engine still accepts every flag that llmgw would pass.",
        ),
    },
)
def ctl() -> None:
    """Ask and tell a fleet what to do; check engines."""

"""llmgw's engine plugin for the simulated engine: the hooks, each handed on to the module that answers it.

This module is the pluggy plugin. Everything else is imported when a hook is called, so that loading the plugin costs
a command-line start nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw_core.hooks import hookimpl

if TYPE_CHECKING:
    from llmgw_core.engine import (
        Command,
        EngineInfo,
        Exit,
        Failure,
        FlagTable,
        Health,
        Probe,
        ReplicaSpec,
        Reply,
        Shard,
    )


@hookimpl
def llmgw_engine_info() -> EngineInfo:
    from llmgw_engine_sim.info import INFO

    return INFO


@hookimpl
def llmgw_widest_specs() -> tuple[ReplicaSpec, ...]:
    from llmgw_engine_sim.widest import widest_specs

    return widest_specs()


@hookimpl
def llmgw_refusals() -> tuple[str, ...]:
    return ()


@hookimpl
def llmgw_build_command(shard: Shard) -> Command:
    from llmgw_engine_sim.command import build_command

    return build_command(shard)


@hookimpl
def llmgw_help_commands(program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
    from llmgw_engine_sim.asking import help_command

    return (help_command(program, executable),)


@hookimpl
def llmgw_read_help(text: str) -> FlagTable:
    from llmgw_engine_sim.asking import read_help

    return read_help(text)


@hookimpl
def llmgw_version_command(program: str, executable: tuple[str, ...]) -> Command:
    from llmgw_engine_sim.asking import version_command

    return version_command(program, executable)


@hookimpl
def llmgw_read_version(text: str) -> str | None:
    from llmgw_engine_sim.asking import read_version

    return read_version(text)


@hookimpl
def llmgw_dry_run() -> Command | None:
    """It starts in no time; there is nothing to win."""
    return None


@hookimpl
def llmgw_read_dry_run() -> tuple[str, ...] | None:
    return None


@hookimpl
def llmgw_health_probe(shard: Shard) -> Probe | None:
    from llmgw_engine_sim.health import health_probe

    return health_probe(shard)


@hookimpl
def llmgw_read_health(shard: Shard, reply: Reply) -> Health:
    from llmgw_engine_sim.health import read_health

    return read_health(shard, reply)


@hookimpl
def llmgw_explain_exit(exit: Exit) -> Failure | None:
    from llmgw_engine_sim.failures import explain_exit

    return explain_exit(exit)

"""llmgw's engine plugin for llama.cpp: the hooks, each handed on to the module that answers it.

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
    from llmgw_engine_llamacpp.info import INFO

    return INFO


@hookimpl
def llmgw_widest_specs() -> tuple[ReplicaSpec, ...]:
    from llmgw_engine_llamacpp.widest import widest_specs

    return widest_specs()


@hookimpl
def llmgw_refusals(replica: ReplicaSpec) -> tuple[str, ...]:
    from llmgw_engine_llamacpp.refusals import refusals

    return refusals(replica)


@hookimpl
def llmgw_build_command(shard: Shard, flags: FlagTable | None) -> Command:
    from llmgw_engine_llamacpp.command import build_command

    return build_command(shard, flags)


@hookimpl
def llmgw_help_commands(program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
    from llmgw_engine_llamacpp.asking import help_command

    return (help_command(program, executable),)


@hookimpl
def llmgw_read_help(program: str, text: str) -> FlagTable:
    from llmgw_engine_llamacpp.help import read_help

    return read_help(program, text)


@hookimpl
def llmgw_version_command(program: str, executable: tuple[str, ...]) -> Command:
    from llmgw_engine_llamacpp.asking import version_command

    return version_command(program, executable)


@hookimpl
def llmgw_read_version(text: str) -> str | None:
    from llmgw_engine_llamacpp.asking import read_version

    return read_version(text)


@hookimpl
def llmgw_dry_run(command: Command) -> Command | None:
    from llmgw_engine_llamacpp.asking import dry_run

    return dry_run(command)


@hookimpl
def llmgw_read_dry_run(exit: Exit) -> tuple[str, ...] | None:
    from llmgw_engine_llamacpp.asking import read_dry_run

    return read_dry_run(exit)


@hookimpl
def llmgw_health_probe(shard: Shard) -> Probe | None:
    from llmgw_engine_llamacpp.health import health_probe

    return health_probe(shard)


@hookimpl
def llmgw_read_health(shard: Shard, reply: Reply) -> Health:
    from llmgw_engine_llamacpp.health import read_health

    return read_health(shard, reply)


@hookimpl
def llmgw_explain_exit(exit: Exit) -> Failure | None:
    from llmgw_engine_llamacpp.failures import explain_exit

    return explain_exit(exit)

"""A third party's whole engine plugin."""

from __future__ import annotations

import re

from llmgw_core.engine import (
    ENGINE_API,
    SWITCH,
    Command,
    Endpoint,
    EngineInfo,
    Exit,
    Failure,
    FailureKind,
    Flag,
    FlagTable,
    Health,
    NotCompleteHelp,
    Phase,
    Probe,
    Program,
    ReplicaSpec,
    Reply,
    Shard,
    Slot,
)
from llmgw_core.hooks import hookimpl


@hookimpl
def llmgw_engine_info() -> EngineInfo:
    return EngineInfo("acme", ENGINE_API, ("3",), (Program("acme-serve", (("acme-serve",),)),))


@hookimpl
def llmgw_widest_specs() -> tuple[ReplicaSpec, ...]:
    slot = Slot(("acme-serve",), Endpoint("0.0.0.0", 18000), "192.0.2.1", "/run/acme")
    return (ReplicaSpec("widest/1", "acme", "/models/m", "m", (slot,)),)


@hookimpl
def llmgw_refusals(replica: ReplicaSpec) -> tuple[str, ...]:
    return ("acme serves on one node only",) if replica.nodes > 1 else ()


@hookimpl
def llmgw_build_command(shard: Shard) -> Command:
    return Command("acme-serve", shard.slot.executable, ("--model", shard.replica.source), shard.replica.extra_args)


@hookimpl
def llmgw_help_commands(executable: tuple[str, ...]) -> tuple[Command, ...]:
    return (Command("acme-serve", executable, ("--help",)),)


@hookimpl
def llmgw_read_help(text: str) -> FlagTable:
    flags = tuple(Flag((name,)) for name in re.findall(r"^(--[\w-]+) VALUE$", text, re.MULTILINE))
    switches = tuple(Flag((name,), SWITCH) for name in re.findall(r"^(--[\w-]+)$", text, re.MULTILINE))
    if not flags + switches:
        raise NotCompleteHelp("no flag of acme-serve is in the text")
    return FlagTable(flags + switches)


@hookimpl
def llmgw_version_command(executable: tuple[str, ...]) -> Command:
    return Command("acme-serve", executable, ("--version",))


@hookimpl
def llmgw_read_version(text: str) -> str | None:
    return text.strip() or None


@hookimpl
def llmgw_dry_run(command: Command) -> Command | None:
    return None


@hookimpl
def llmgw_read_dry_run(exit: Exit) -> tuple[str, ...] | None:
    return None


@hookimpl
def llmgw_health_probe(shard: Shard) -> Probe | None:
    return Probe(shard.slot.listen.from_own_node, "/health")


@hookimpl
def llmgw_read_health(reply: Reply) -> Health:
    return Health(Phase.READY if reply.status == 200 else Phase.STARTING)


@hookimpl
def llmgw_explain_exit(exit: Exit) -> Failure | None:
    return None if exit.asked else Failure(FailureKind.CRASHED, str(exit))

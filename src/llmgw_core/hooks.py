"""The hooks of an engine plugin, and of a site plugin that wraps them.

All are pure: no I/O, no clock, no environment. An engine plugin implements them with `hookimpl` in the module that its
entry point names; a site's plugin adds `wrapper=True` implementations, which see every engine's calls.
An implementation may take fewer arguments than are listed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

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

hookspec = pluggy.HookspecMarker("llmgw")
hookimpl = pluggy.HookimplMarker("llmgw")

# mypy: disable-error-code="empty-body"


@hookspec(firstresult=True)
def llmgw_engine_info() -> EngineInfo:
    """What the plugin supports. Called once, when it is loaded."""


@hookspec(firstresult=True)
def llmgw_widest_specs() -> tuple[ReplicaSpec, ...]:
    """Replicas whose commands, together, hold every flag that the plugin would ever pass; the widest first."""


@hookspec(firstresult=True)
def llmgw_refusals(replica: ReplicaSpec) -> tuple[str, ...]:
    """Why this engine cannot run a replica that is valid as such, a clause with the numbers each; empty when it can."""


@hookspec(firstresult=True)
def llmgw_build_command(shard: Shard, flags: FlagTable | None) -> Command:
    """The command of a shard.

    `flags` is what the program that will run it documents: a flag that only newer versions have is passed only when it
    is there. `None`: not known, so only what every checked version accepts is passed.
    """


@hookspec(firstresult=True)
def llmgw_help_commands(program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
    """The commands that may print the complete help; the first whose output can be read counts."""


@hookspec(firstresult=True)
def llmgw_read_help(program: str, text: str) -> FlagTable:
    """The flags that a help text documents. Takes any text; raises `NotCompleteHelp` and nothing else."""


@hookspec(firstresult=True)
def llmgw_version_command(program: str, executable: tuple[str, ...]) -> Command:
    """The command that prints the engine's version."""


@hookspec(firstresult=True)
def llmgw_read_version(text: str) -> str | None:
    """The version in the output of the version command, both streams; `None` when there is none. Takes any text."""


@hookspec(firstresult=True)
def llmgw_dry_run(command: Command) -> Command | None:
    """The same command made harmless: it validates its arguments and starts nothing. `None`: there is no such way."""


@hookspec(firstresult=True)
def llmgw_read_dry_run(exit: Exit) -> tuple[str, ...] | None:
    """What the engine refused, in its own words; empty when it accepted all; `None` when the run proves nothing."""


@hookspec(firstresult=True)
def llmgw_health_probe(shard: Shard) -> Probe | None:
    """What to ask this shard. `None`: it serves nothing, and only its process is watched."""


@hookspec(firstresult=True)
def llmgw_read_health(shard: Shard, reply: Reply) -> Health:
    """What the answer to the probe means. Takes any reply."""


@hookspec(firstresult=True)
def llmgw_explain_exit(exit: Exit) -> Failure | None:
    """Why a shard ended; `None` when it was asked to and ended as this engine does. Takes any exit."""


@hookspec
def llmgw_announce(fact: Any) -> None:
    """Something happened: an `EngineReport` was made. For observers; what one raises is logged and stops nobody."""

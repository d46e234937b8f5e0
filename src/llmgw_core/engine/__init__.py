"""What an engine plugin speaks: the values that its hooks take and give. No behaviour beyond look-ups.

A new hook, a new hook argument and a new field with a default are compatible; anything else raises `ENGINE_API`.
"""

from __future__ import annotations

from llmgw_core.engine.command import Command, File, LaunchOrder, Stop, StopStep
from llmgw_core.engine.flags import ONE, SWITCH, Arity, Flag, FlagState, FlagTable, Spelling, Surface
from llmgw_core.engine.health import (
    Exit,
    Failure,
    FailureKind,
    Health,
    Phase,
    Probe,
    Progress,
    Reply,
    ReplyKind,
)
from llmgw_core.engine.info import ENGINE_API, EngineInfo, Program, Rename
from llmgw_core.errors import ImpossibleReplica, NotCompleteHelp
from llmgw_core.model.replica import (
    Endpoint,
    Hca,
    Parallel,
    ReplicaSpec,
    Secret,
    Settings,
    Shard,
    Slot,
    Speculative,
)

__all__ = [
    "ENGINE_API",
    "ONE",
    "SWITCH",
    "Arity",
    "Command",
    "Endpoint",
    "EngineInfo",
    "Exit",
    "Failure",
    "FailureKind",
    "File",
    "Flag",
    "FlagState",
    "FlagTable",
    "Hca",
    "Health",
    "ImpossibleReplica",
    "LaunchOrder",
    "NotCompleteHelp",
    "Parallel",
    "Phase",
    "Probe",
    "Program",
    "Progress",
    "Rename",
    "ReplicaSpec",
    "Reply",
    "ReplyKind",
    "Secret",
    "Settings",
    "Shard",
    "Slot",
    "Speculative",
    "Spelling",
    "Stop",
    "StopStep",
    "Surface",
]

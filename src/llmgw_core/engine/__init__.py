"""What an engine plugin speaks: the values that its hooks take and give. No behaviour beyond look-ups.

A new hook, a new hook argument and a new field with a default are compatible; anything else raises `ENGINE_API`.
Names are imported when they are first used: making the classes is a good part of a command line's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw_core.lazy import lazy_names

if TYPE_CHECKING:
    from llmgw_core.engine.command import Command as Command
    from llmgw_core.engine.command import File as File
    from llmgw_core.engine.command import LaunchOrder as LaunchOrder
    from llmgw_core.engine.command import Stop as Stop
    from llmgw_core.engine.command import StopStep as StopStep
    from llmgw_core.engine.flags import ONE as ONE
    from llmgw_core.engine.flags import SWITCH as SWITCH
    from llmgw_core.engine.flags import Arity as Arity
    from llmgw_core.engine.flags import Flag as Flag
    from llmgw_core.engine.flags import FlagState as FlagState
    from llmgw_core.engine.flags import FlagTable as FlagTable
    from llmgw_core.engine.flags import Spelling as Spelling
    from llmgw_core.engine.flags import Surface as Surface
    from llmgw_core.engine.health import Exit as Exit
    from llmgw_core.engine.health import Failure as Failure
    from llmgw_core.engine.health import FailureKind as FailureKind
    from llmgw_core.engine.health import Health as Health
    from llmgw_core.engine.health import Phase as Phase
    from llmgw_core.engine.health import Probe as Probe
    from llmgw_core.engine.health import Progress as Progress
    from llmgw_core.engine.health import Reply as Reply
    from llmgw_core.engine.health import ReplyKind as ReplyKind
    from llmgw_core.engine.info import ENGINE_API as ENGINE_API
    from llmgw_core.engine.info import EngineInfo as EngineInfo
    from llmgw_core.engine.info import Program as Program
    from llmgw_core.engine.info import Rename as Rename
    from llmgw_core.errors import ImpossibleReplica as ImpossibleReplica
    from llmgw_core.errors import NotCompleteHelp as NotCompleteHelp
    from llmgw_core.model.replica import Endpoint as Endpoint
    from llmgw_core.model.replica import Hca as Hca
    from llmgw_core.model.replica import Parallel as Parallel
    from llmgw_core.model.replica import ReplicaSpec as ReplicaSpec
    from llmgw_core.model.replica import Secret as Secret
    from llmgw_core.model.replica import Settings as Settings
    from llmgw_core.model.replica import Shard as Shard
    from llmgw_core.model.replica import Slot as Slot
    from llmgw_core.model.replica import Speculative as Speculative

__getattr__, __all__ = lazy_names(
    globals(),
    {
        "llmgw_core.engine.command": (
            "Command",
            "File",
            "LaunchOrder",
            "Stop",
            "StopStep",
        ),
        "llmgw_core.engine.flags": (
            "ONE",
            "SWITCH",
            "Arity",
            "Flag",
            "FlagState",
            "FlagTable",
            "Spelling",
            "Surface",
        ),
        "llmgw_core.engine.health": (
            "Exit",
            "Failure",
            "FailureKind",
            "Health",
            "Phase",
            "Probe",
            "Progress",
            "Reply",
            "ReplyKind",
        ),
        "llmgw_core.engine.info": (
            "ENGINE_API",
            "EngineInfo",
            "Program",
            "Rename",
        ),
        "llmgw_core.errors": (
            "ImpossibleReplica",
            "NotCompleteHelp",
        ),
        "llmgw_core.model.replica": (
            "Endpoint",
            "Hca",
            "Parallel",
            "ReplicaSpec",
            "Secret",
            "Settings",
            "Shard",
            "Slot",
            "Speculative",
        ),
    },
)

"""The core of llmgw, for custom tooling: load engine plugins, build commands, read help texts, compare.

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw_core.lazy import lazy_names

if TYPE_CHECKING:
    from llmgw_core.checking import Material as Material
    from llmgw_core.checking import NamedProfile as NamedProfile
    from llmgw_core.checking import check_engine as check_engine
    from llmgw_core.checking import check_versions as check_versions
    from llmgw_core.checking import read_given as read_given
    from llmgw_core.checking import read_recorded as read_recorded
    from llmgw_core.checking import recorded_versions as recorded_versions
    from llmgw_core.checking import select_profiles as select_profiles
    from llmgw_core.codec import BadFile as BadFile
    from llmgw_core.codec import parse_catalog as parse_catalog
    from llmgw_core.engine import ENGINE_API as ENGINE_API
    from llmgw_core.engine import Command as Command
    from llmgw_core.engine import Endpoint as Endpoint
    from llmgw_core.engine import EngineInfo as EngineInfo
    from llmgw_core.engine import Exit as Exit
    from llmgw_core.engine import Failure as Failure
    from llmgw_core.engine import Flag as Flag
    from llmgw_core.engine import FlagTable as FlagTable
    from llmgw_core.engine import Hca as Hca
    from llmgw_core.engine import Health as Health
    from llmgw_core.engine import Parallel as Parallel
    from llmgw_core.engine import Probe as Probe
    from llmgw_core.engine import Program as Program
    from llmgw_core.engine import ReplicaSpec as ReplicaSpec
    from llmgw_core.engine import Reply as Reply
    from llmgw_core.engine import Secret as Secret
    from llmgw_core.engine import Settings as Settings
    from llmgw_core.engine import Shard as Shard
    from llmgw_core.engine import Slot as Slot
    from llmgw_core.engine import Speculative as Speculative
    from llmgw_core.engines import Engines as Engines
    from llmgw_core.engines import PluginFailed as PluginFailed
    from llmgw_core.engines import RefusedPlugin as RefusedPlugin
    from llmgw_core.errors import ImpossibleReplica as ImpossibleReplica
    from llmgw_core.errors import LlmgwError as LlmgwError
    from llmgw_core.errors import NotCompleteHelp as NotCompleteHelp
    from llmgw_core.errors import UnknownEngine as UnknownEngine
    from llmgw_core.examine.installed import Installation as Installation
    from llmgw_core.examine.installed import check_installed as check_installed
    from llmgw_core.hooks import hookimpl as hookimpl
    from llmgw_core.model.catalog import Catalog as Catalog
    from llmgw_core.model.catalog import Model as Model
    from llmgw_core.model.catalog import Profile as Profile
    from llmgw_core.plan.engine_check import EngineReport as EngineReport
    from llmgw_core.plan.engine_check import FlagReport as FlagReport
    from llmgw_core.plan.engine_check import Outcome as Outcome
    from llmgw_core.plan.engine_check import RoleCommand as RoleCommand
    from llmgw_core.plan.engine_check import compare as compare
    from llmgw_core.plan.verdict import Verdict as Verdict
    from llmgw_core.plugins import load_engines as load_engines

__getattr__, __all__ = lazy_names(
    globals(),
    {
        "llmgw_core.checking": (
            "Material",
            "NamedProfile",
            "check_engine",
            "check_versions",
            "read_given",
            "read_recorded",
            "recorded_versions",
            "select_profiles",
        ),
        "llmgw_core.codec": (
            "BadFile",
            "parse_catalog",
        ),
        "llmgw_core.engine": (
            "Command",
            "ENGINE_API",
            "Endpoint",
            "EngineInfo",
            "Exit",
            "Failure",
            "Flag",
            "FlagTable",
            "Hca",
            "Health",
            "Parallel",
            "Probe",
            "Program",
            "ReplicaSpec",
            "Reply",
            "Secret",
            "Settings",
            "Shard",
            "Slot",
            "Speculative",
        ),
        "llmgw_core.engines": ("Engines", "PluginFailed", "RefusedPlugin"),
        "llmgw_core.errors": ("ImpossibleReplica", "LlmgwError", "NotCompleteHelp", "UnknownEngine"),
        "llmgw_core.examine.installed": (
            "Installation",
            "check_installed",
        ),
        "llmgw_core.hooks": ("hookimpl",),
        "llmgw_core.model.catalog": (
            "Catalog",
            "Model",
            "Profile",
        ),
        "llmgw_core.plan.engine_check": ("EngineReport", "FlagReport", "Outcome", "RoleCommand", "compare"),
        "llmgw_core.plan.verdict": ("Verdict",),
        "llmgw_core.plugins": ("load_engines",),
    },
)

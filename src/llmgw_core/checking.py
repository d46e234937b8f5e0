"""An engine-check from texts that are at hand: given ones, or recorded ones.

In: the plugins, an engine, profiles, and a table for each of its programs or the reason why there is none.
Out: an `EngineReport`. What runs an installed engine is `examine.installed`, which ends here too.
Rules: the widest command comes first; a flag that only newer engines have is in a command only where the table has it,
so commands are built anew for each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from llmgw_core.engine import EngineInfo, FlagTable, ImpossibleReplica, NotCompleteHelp, ReplicaSpec
from llmgw_core.engines import Engines
from llmgw_core.errors import LlmgwError
from llmgw_core.model.origin import LLMGW
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.engine_check import (
    Comparison,
    DryRun,
    EngineReport,
    JudgedCommand,
    Outcome,
    RoleCommand,
    compare,
)
from llmgw_core.surface import read_surfaces

if TYPE_CHECKING:
    from llmgw_core.model.catalog import Catalog, Profile


@frozen
class NamedProfile:
    """A profile to be checked, with the model that it is for."""

    name: str
    profile: Profile
    served_name: str = "model"
    source: str = "/models/model"

    @property
    def title(self) -> str:
        return f"profile {self.name}"


@frozen
class Material:
    """What is known of an engine: the tables of its programs, and where they are from."""

    source: str
    tables: Mapping[str, FlagTable] = field(factory=dict, converter=frozen_mapping, hash=False)
    executables: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=frozen_mapping, hash=False)
    """The commands of its programs, where they are known."""
    shown_executable: str | None = None
    version: str | None = None
    unchecked: str = ""
    """Why the head's program has no table."""
    warnings: tuple[str, ...] = ()


def select_profiles(catalog: Catalog, engine: str, names: Sequence[str] = ()) -> tuple[NamedProfile, ...]:
    """The catalog's profiles of this engine, or those named; raises where a named one is not there or is another's."""
    for name in names:
        if catalog.profile(name).engine != engine:
            raise LlmgwError(f"profile {name} is for {catalog.profile(name).engine}, not for {engine}")
    return tuple(_named(catalog, name) for name in names or catalog.profiles if catalog.profiles[name].engine == engine)


def _named(catalog: Catalog, name: str) -> NamedProfile:
    model = catalog.model_of(name)
    if model is None:
        return NamedProfile(name, catalog.profiles[name])
    return NamedProfile(name, catalog.profiles[name], served_name=model[0], source=model[1].source)


def read_given(engines: Engines, engine: str, texts: Mapping[str, str], source: str) -> Material:
    """Material from help texts that somebody gave, by program; the head's is needed."""
    info = engines.info(engine)
    tables: dict[str, FlagTable] = {}
    warnings: list[str] = []
    unchecked = ""
    for program in info.programs:
        if program.name not in texts:
            warnings.append(f"{program.name} was not examined: its help was not given")
            continue
        try:
            tables[program.name] = engines.read_help(engine, program.name, texts[program.name])
        except NotCompleteHelp as error:
            unchecked = unchecked or error.reason
    return Material(source, tables, unchecked=unchecked, warnings=tuple(warnings))


def read_recorded(info: EngineInfo, version: str) -> Material:
    """Material from the plugin's recorded tables of one engine version; raises where that was not recorded."""
    recorded = {program.name: read_surfaces(info, program.name) for program in info.programs}
    tables = {name: s.table for name, surfaces in recorded.items() for s in surfaces if s.version == version}
    head = info.programs[0].name
    if head not in tables:
        known = ", ".join(surface.version for surface in recorded[head])
        why = f"recorded: {known}" if known else _unrecorded(info)
        raise LlmgwError(f"{info.name} {version} was not recorded ({why})")
    lacking = [name for name in recorded if name not in tables]
    warnings = [f"{name} was not recorded for {version}" for name in lacking]
    return Material(f"recorded flags of {head} {version}", tables, version=version, warnings=tuple(warnings))


def _unrecorded(info: EngineInfo) -> str:
    """Why a version may be among those that the plugin was checked against, and not among the recorded ones."""
    checked = ", ".join(info.checked_versions)
    return f"its plugin records none; it was checked against {checked} as installed: examine the one that is installed"


def recorded_versions(info: EngineInfo) -> tuple[str, ...]:
    """The engine versions that the plugin recorded, oldest first; empty where it was checked without records."""
    return tuple(surface.version for surface in read_surfaces(info, info.programs[0].name))


def check_engine(
    engines: Engines,
    engine: str,
    material: Material,
    profiles: Sequence[NamedProfile] = (),
    *,
    widest: bool = True,
    dry_runs: Sequence[DryRun] = (),
) -> EngineReport:
    """Judge the widest command (unless told not to) and those of the profiles by what the material says."""
    info = engines.info(engine)
    report = EngineReport(
        engine=engine,
        executable=material.shown_executable,
        engine_version=material.version,
        source=material.source,
        outcome=Outcome.UNCHECKED,
        reason=material.unchecked,
        warnings=material.warnings,
    )
    if material.unchecked:
        return report
    commands, impossible = build_commands(engines, info, material, profiles, widest=widest)
    compared = compare(info, commands, material.tables, lambda name: read_surfaces(info, name))
    report = evolve(
        report, commands=tuple(JudgedCommand(each.role, each.profile, each.command.argv) for each in commands)
    )
    lacking = _needed_but_missing(material, info, profiles)
    return _conclude(evolve(report, dry_runs=tuple(dry_runs)), compared, impossible, lacking)


def _needed_but_missing(material: Material, info: EngineInfo, profiles: Sequence[NamedProfile]) -> str:
    """A workers' program without a table is a warning, until a profile over several nodes needs it: then, why."""
    worker = info.programs[-1].name
    needing = [named.name for named in profiles if named.profile.nodes > 1]
    if worker in material.tables or not needing:
        return ""
    why = next((text for text in material.warnings if worker in text), f"{worker} was not examined")
    return f"profile {needing[0]} needs {worker}: {why}"


def _conclude(report: EngineReport, compared: Comparison, impossible: Sequence[str], lacking: str) -> EngineReport:
    refused = [run for run in report.dry_runs if run.complaints]
    outcome = compared.outcome
    if outcome is Outcome.ACCEPTED and (impossible or refused):
        outcome = Outcome.FINDINGS
    nothing = "" if compared.flags or impossible else "no command was judged"
    if outcome is Outcome.ACCEPTED and (lacking or nothing):
        outcome = Outcome.UNCHECKED
    return evolve(
        report,
        outcome=outcome,
        reason="; ".join(filter(None, (compared.unchecked, lacking, nothing, *impossible))),
        warnings=(*report.warnings, *compared.warnings),
        flags=compared.flags,
    )


def build_commands(
    engines: Engines,
    info: EngineInfo,
    material: Material,
    profiles: Sequence[NamedProfile],
    *,
    widest: bool = True,
    real_files: bool = True,
) -> tuple[tuple[RoleCommand, ...], tuple[str, ...]]:
    """The commands to judge, and for each profile that cannot be built the reason.

    Without `real_files` the widest command names no file that an engine would open while it reads its arguments.
    """
    commands: list[RoleCommand] = []
    impossible: list[str] = []
    for spec in engines.widest_specs(info.name) if widest else ():
        if not real_files:
            spec = evolve(spec, settings=evolve(spec.settings, chat_template=None))
        commands += _commands_of(engines, info, material, spec, LLMGW)
    for named in profiles:
        from llmgw_core.plan.profile import stand_in_replica  # the catalog's classes are made only where there is one

        try:
            spec = stand_in_replica(named.profile, named.name, named.served_name, named.source)
            commands += _commands_of(engines, info, material, spec, named.name)
        except ImpossibleReplica as error:
            impossible.append(f"{named.title} is impossible: {'; '.join(error.reasons)}")
    return tuple(commands), tuple(impossible)


def _commands_of(
    engines: Engines, info: EngineInfo, material: Material, spec: ReplicaSpec, profile: str
) -> Iterator[RoleCommand]:
    placed = _in_executables(spec, info, material.executables)
    for shard in placed.shards:
        program = program_of(info, shard.node_rank)
        command = engines.build_command(shard, material.tables.get(program))
        yield RoleCommand("head" if shard.is_head else "worker", profile, command)


def program_of(info: EngineInfo, node_rank: int) -> str:
    """The head runs the engine's first program, workers its last."""
    return info.programs[0 if node_rank == 0 else -1].name


def _in_executables(spec: ReplicaSpec, info: EngineInfo, executables: Mapping[str, tuple[str, ...]]) -> ReplicaSpec:
    slots = [
        evolve(slot, executable=executables.get(program_of(info, rank), slot.executable))
        for rank, slot in enumerate(spec.slots)
    ]
    return evolve(spec, slots=tuple(slots))


def check_versions(
    engines: Engines, engine: str, profiles: Sequence[NamedProfile], *, widest: bool
) -> tuple[EngineReport, ...]:
    """One report for each recorded version of the engine, oldest first."""
    info = engines.info(engine)
    if not recorded_versions(info):
        raise LlmgwError(f"the {engine} plugin has recorded no version's flags")
    return tuple(
        check_engine(engines, engine, read_recorded(info, version), profiles, widest=widest)
        for version in recorded_versions(info)
    )

"""An engine-check of the engine that is installed on this machine.

In: the plugins, an engine, profiles, and where its programs are.  Out: an `EngineReport`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

import trio
from attrs import field, frozen

from llmgw_core.checking import Material, NamedProfile, build_commands, check_engine
from llmgw_core.engine import EngineInfo, FlagTable
from llmgw_core.engines import Engines
from llmgw_core.examine.engine import Examined, dry_run, examine_program
from llmgw_core.examine.executable import EngineNotFound, find_program, resolve, shown
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.engine_check import DryRun, EngineReport, RoleCommand

DEFAULT_TIMEOUT_S = 300.0
"""For one command of an engine: vLLM's help takes 15 s on an idle machine and minutes on a busy one."""


@frozen
class Installation:
    """Where to look, and how long to wait."""

    executables: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By program, what the operator named; the others are looked for."""
    environ: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    dry_run: bool = False


async def check_installed(
    engines: Engines, engine: str, profiles: Sequence[NamedProfile], where: Installation, *, widest: bool = True
) -> EngineReport:
    """Run the engine's help, read it, and judge the commands by it."""
    info = engines.info(engine)
    material = await examine_installed(engines, info, where)
    runs = await _dry_runs(engines, info, material, profiles, where) if where.dry_run and not material.unchecked else ()
    judge = partial(check_engine, engines, engine, material, profiles, widest=widest, dry_runs=runs)
    return await trio.to_thread.run_sync(judge, abandon_on_cancel=True)


async def examine_installed(engines: Engines, info: EngineInfo, where: Installation) -> Material:
    """The flag tables of the engine's programs as they are installed, or the reason why there are none."""
    try:
        executables, warnings = find_programs(info, where.executables)
    except EngineNotFound as error:
        return Material("nothing", unchecked=str(error))
    found: dict[str, Examined] = {}

    async def examine(program: str, executable: tuple[str, ...]) -> None:
        found[program] = await examine_program(
            engines, info.name, program, executable, environ=where.environ, timeout_s=where.timeout_s
        )

    async with trio.open_nursery() as nursery:
        for program, executable in executables.items():
            nursery.start_soon(examine, program, executable)
    return _material(info, executables, found, warnings)


def find_programs(
    info: EngineInfo, named: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The command of each of the engine's programs, and warnings for those that are not there.

    Raises `EngineNotFound` for the head's.
    """
    head, *others = info.programs
    executables = {head.name: resolve(named[head.name]) if head.name in named else find_program(head)}
    warnings = []
    beside = os.path.dirname(executables[head.name][0])
    for program in others:
        try:
            given = named.get(program.name)
            executables[program.name] = resolve(given) if given else find_program(program, beside)
        except EngineNotFound as error:
            warnings.append(f"{error}: no replica over several nodes can run here")
    return executables, tuple(warnings)


def _material(
    info: EngineInfo, executables: Mapping[str, tuple[str, ...]], found: Mapping[str, Examined], warnings: Sequence[str]
) -> Material:
    head = info.programs[0].name
    tables: dict[str, FlagTable] = {name: each.table for name, each in found.items() if each.table is not None}
    failed = [f"{name}: {each.reason}" for name, each in found.items() if each.table is None and name != head]
    unknown = [] if found[head].version else [f"the version of {head} could not be read"]
    return Material(
        source=f"ran {found[head].source}",
        tables=tables,
        executables=executables,
        shown_executable=None if found[head].absent else shown(executables[head]),
        version=found[head].version,
        unchecked=found[head].reason,
        warnings=(*warnings, *failed, *unknown),
    )


async def _dry_runs(
    engines: Engines, info: EngineInfo, material: Material, profiles: Sequence[NamedProfile], where: Installation
) -> tuple[DryRun, ...]:
    """The engine's own opinion: of each profile's commands, or of the widest ones where no profile is given."""
    commands, _ = build_commands(engines, info, material, profiles, widest=not profiles, real_files=False)
    runs = []
    for each in _distinct(commands):
        complaints = await dry_run(engines, info.name, each.command, environ=where.environ, timeout_s=where.timeout_s)
        runs.append(DryRun(each.role, each.profile, complaints))
    return tuple(runs)


def _distinct(commands: Sequence[RoleCommand]) -> tuple[RoleCommand, ...]:
    """One command for each role of each profile: a dry run of every worker would say the same."""
    seen: dict[tuple[str, str], RoleCommand] = {}
    for each in commands:
        seen.setdefault((each.profile, each.role), each)
    return tuple(seen.values())

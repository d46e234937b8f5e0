"""An engine as it is installed on this node: what engine-check says of it here, and the tables of its flags.

In: the plugins, the programs that the operator named, what was found the last time.  Out: an `Inspected`.
Rules: a help is run again only when a file behind it changed (path, inode, size, time), or a plugin, or the core; what
could not be checked is tried again each time, since a failure at boot is not for ever. Nothing here raises for an
engine: what is wrong with it is its reason.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from glob import glob
from importlib.metadata import version

import trio
from attrs import field, frozen

from llmgw_core.checking import Material, check_engine
from llmgw_core.engine import EngineInfo, FlagTable
from llmgw_core.engines import Engines, LoadedPlugin
from llmgw_core.errors import LlmgwError
from llmgw_core.examine.executable import EngineNotFound
from llmgw_core.examine.installed import DEFAULT_TIMEOUT_S, Installation, examine_installed, find_programs
from llmgw_core.model.node import EngineFound
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.engine_check import EngineReport, Outcome
from llmgw_core.surface import render_surface

FORMAT = 2
"""Of what is kept of an inventory; another one is not read."""


@frozen
class Named:
    """What the operator's settings say of the engines."""

    executables: Mapping[str, Mapping[str, tuple[str, ...]]] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By engine and program, its command; what is not named is looked for in PATH."""
    environ: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    timeout_s: float = DEFAULT_TIMEOUT_S


@frozen
class Inspected:
    """One engine, with the key of what was inspected."""

    found: EngineFound
    key: str
    """Equal as long as the same files, plugins and core would be asked."""
    tables: Mapping[str, FlagTable] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By program, the flags that its help documents."""
    executables: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By program, its command."""
    warnings: tuple[str, ...] = ()
    """Why a program has no table, among others."""


async def inspect_engine(
    engines: Engines, plugin: LoadedPlugin, named: Named, before: Inspected | None = None
) -> Inspected:
    """One engine; what `before` says of it, as long as nothing has changed since."""
    info = plugin.info
    where = Installation(named.executables.get(info.name, {}), named.environ, named.timeout_s)
    try:
        programs, _ = find_programs(info, where.executables)
    except EngineNotFound as error:
        return Inspected(EngineFound(info.name, None, reason=str(error)), "")
    key = _key(engines, plugin, programs)
    if before is not None and before.key == key and before.found.outcome != Outcome.UNCHECKED.value:
        return before
    try:
        return await _check(engines, info, where, key)
    except LlmgwError as error:
        return Inspected(EngineFound(info.name, programs[info.programs[0].name][0], reason=str(error)), key)


async def _check(engines: Engines, info: EngineInfo, where: Installation, key: str) -> Inspected:
    material = await examine_installed(engines, info, where)
    # A help of many thousand flags takes its time, and the agent's heartbeats do not wait for it.
    found = await trio.to_thread.run_sync(_judge, engines, info, material, abandon_on_cancel=True)
    return Inspected(found, key, material.tables, material.executables, material.warnings)


def _judge(engines: Engines, info: EngineInfo, material: Material) -> EngineFound:
    report = check_engine(engines, info.name, material)
    return EngineFound(
        engine=info.name,
        executable=material.shown_executable,
        version=material.version,
        help_digest=_digest(material, info),
        outcome=report.outcome.value,
        reason=_first_reason(report),
    )


def _digest(material: Material, info: EngineInfo) -> str | None:
    return help_digest(material.tables) if info.programs[0].name in material.tables else None


def help_digest(tables: Mapping[str, FlagTable]) -> str:
    """SHA-256, in hex, of all that the tables say of flags; their order in the help and its prose do not count."""
    rendered = {program: _canonical(table) for program, table in tables.items()}
    return hashlib.sha256(json.dumps(rendered, sort_keys=True).encode()).hexdigest()


def _canonical(table: FlagTable) -> list[str]:
    return sorted(json.dumps(flag, sort_keys=True) for flag in render_surface(table)["flags"])


def _first_reason(report: EngineReport) -> str:
    """The first refused flag; else why the check says what it says, else the first warning."""
    if report.outcome is Outcome.FINDINGS:
        for flag in report.flags:
            if not flag.verdict.passes:
                return f"{flag.flag} ({flag.verdict.value})"
    return report.reason or next(iter(report.warnings), "")


def _key(engines: Engines, plugin: LoadedPlugin, programs: Mapping[str, tuple[str, ...]]) -> str:
    speaking = [f"llmgw-core {version('llmgw-core')}", f"{plugin.distribution} {plugin.version}"]
    site = [f"{each.distribution} {each.version}" for each in engines.site]
    commands = [f"{name}={list(command)}" for name, command in sorted(programs.items())]
    files = [_state(path) for command in programs.values() for path in _files(command)]
    return "\n".join([*speaking, *site, *commands, *files])


def _files(command: Sequence[str]) -> list[str]:
    """What a change of the engine would change: its file, the file behind its links, and its Python's packages.

    A program that Python starts (`python -m sglang.launch_server`) is upgraded without any change of its file; the
    directory of installed packages changes with every installation.
    """
    own, real = command[0], os.path.realpath(command[0])
    prefixes = dict.fromkeys(os.path.dirname(os.path.dirname(path)) for path in (own, real))
    packages = [path for prefix in prefixes for path in sorted(glob(f"{prefix}/lib/python3*/*-packages"))]
    return [*dict.fromkeys((own, real)), *packages]


def _state(path: str) -> str:
    try:
        is_now = os.stat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path}: {is_now.st_dev} {is_now.st_ino} {is_now.st_size} {is_now.st_mtime_ns}"

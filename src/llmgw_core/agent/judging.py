"""What the engine that is installed here says of a command: the launch gate, and the answer to an offer.

In: the plugins, an inspected engine, commands.  Out: why it refuses, in one line; empty where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmgw_core.discovery.engines import Inspected
from llmgw_core.engine import Command, EngineInfo
from llmgw_core.engines import Engines
from llmgw_core.plan.engine_check import FlagReport, RoleCommand, compare
from llmgw_core.surface import read_surfaces


def refusal_of(engines: Engines, engine: str, inspected: Inspected, commands: Sequence[Command]) -> str:
    """`--swap-space (not documented)`, or why these commands cannot be judged; empty: all are accepted."""
    info = engines.info(engine)
    lacking = lacking_table(info, inspected, {command.program for command in commands})
    if lacking:
        return lacking
    told = [RoleCommand("", "", command) for command in commands]
    compared = compare(info, told, inspected.tables, lambda name: read_surfaces(info, name))
    refused = next((_said(flag) for flag in compared.flags if not flag.verdict.passes), "")
    return f"{engine} could not be checked: {compared.unchecked}" if compared.unchecked else refused


def lacking_table(info: EngineInfo, inspected: Inspected, programs: set[str]) -> str:
    """Why the flags of one of these programs are not known."""
    for program in sorted(programs - inspected.tables.keys()):
        if inspected.found.executable is None:
            return inspected.found.reason
        why = next((text for text in inspected.warnings if program in text), inspected.found.reason)
        return f"{info.name} could not be checked: {why or f'{program} was not examined'}"
    return ""


def _said(flag: FlagReport) -> str:
    instead = f"; use {' or '.join(flag.suggestions)}" if flag.suggestions else ""
    return f"{flag.flag} ({flag.verdict.value}){instead}"

"""What an installed engine says of itself: its version, its flags, and its opinion of a whole command.

In: the plugins, an engine, one of its programs, its command.  Out: an `Examined`, or the reason why there is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import pairwise
from shlex import join

import trio
from attrs import evolve, frozen

from llmgw_core.engine import Command, Exit, FlagTable, NotCompleteHelp
from llmgw_core.engines import Engines
from llmgw_core.examine.executable import NOT_FOUND
from llmgw_core.examine.process import Finished, run_to_end

SHOWN_LINES = 3
"""Of a crashed help's last words."""


@frozen
class Examined:
    """One program's help, read."""

    table: FlagTable | None
    """`None`: it could not be had, see `reason`."""
    reason: str = ""
    version: str | None = None
    source: str = ""
    """The command that printed the help."""
    absent: bool = False
    """Python is there, and the engine that was to be its module is not."""


async def examine_program(
    engines: Engines,
    engine: str,
    program: str,
    executable: tuple[str, ...],
    *,
    environ: Mapping[str, str],
    timeout_s: float,
) -> Examined:
    """Ask a program for its version and its complete help, both at once."""
    version: list[str | None] = [None]

    async def ask_version() -> None:
        command = engines.version_command(engine, program, executable)
        version[0] = await _fetch_version(engines, engine, command, environ, timeout_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_version)
        examined = await _fetch_help(engines, engine, program, executable, environ, timeout_s)
    return evolve(examined, version=version[0])


async def _fetch_version(
    engines: Engines, engine: str, command: Command, environ: Mapping[str, str], timeout_s: float
) -> str | None:
    try:
        ended = await run_to_end(command, environ, timeout_s)
    except OSError:
        return None  # the help command meets the same error, and reports it
    said = f"{ended.stdout}\n{ended.stderr}"
    return await trio.to_thread.run_sync(engines.read_version, engine, said, abandon_on_cancel=True)


async def _fetch_help(
    engines: Engines,
    engine: str,
    program: str,
    executable: tuple[str, ...],
    environ: Mapping[str, str],
    timeout_s: float,
) -> Examined:
    reason = "it has no help command"
    for command in engines.help_commands(engine, program, executable):
        said = join(command.argv)
        try:
            ended = await run_to_end(command, environ, timeout_s)
        except OSError as error:
            return Examined(None, f"{command.argv[0]} cannot be started: {_why_not(command, error)}", source=said)
        if ended.timed_out:
            return Examined(None, f"help timed out: {said} printed no end within {timeout_s:g} s", source=said)
        if _lacks_module(command, ended):
            return Examined(None, f"{NOT_FOUND}: {last_words(ended)}", source=said, absent=True)
        table, reason = await trio.to_thread.run_sync(_read, engines, engine, program, ended, abandon_on_cancel=True)
        if table is not None:
            return Examined(table, source=said)
        reason = f"{reason} ({said})"
    return Examined(None, reason, source=said)


def _why_not(command: Command, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and os.path.exists(command.argv[0]):
        return "the interpreter that its #! line names is not there"
    return error.strerror or str(error)


def _lacks_module(command: Command, ended: Finished) -> bool:
    """Whether what `python -m` was to run is not installed; what lacks another module is there, and broken."""
    module = next((name for option, name in pairwise(command.argv) if option == "-m"), "").partition(".")[0]
    missing = rf"No module named '?{re.escape(module)}\b"
    return bool(module) and ended.code != 0 and re.search(missing, last_words(ended)) is not None


def _read(engines: Engines, engine: str, program: str, ended: Finished) -> tuple[FlagTable | None, str]:
    """The table, or why there is none. Help stands on one of the two streams; which one differs by program."""
    if ended.code != 0 and "No module named" in last_words(ended):
        return None, f"{NOT_FOUND}: {last_words(ended)}"
    if ended.code != 0:
        return None, f"help crashed: {_how(ended)}: {last_words(ended)}"
    reasons = []
    for text in (ended.stdout, ended.stderr):
        if text.strip():
            try:
                return engines.read_help(engine, program, text), ""
            except NotCompleteHelp as error:
                reasons.append(error.reason)
    return None, reasons[0] if reasons else "help printed nothing"


def _how(ended: Finished) -> str:
    return f"exit code {ended.code}" if ended.signal is None else f"signal {ended.signal}"


def last_words(ended: Finished) -> str:
    """The last lines that are not empty, of standard error or else of standard output, on one line."""
    lines = [line.strip() for line in (ended.stderr.strip() or ended.stdout).splitlines() if line.strip()]
    return " | ".join(lines[-SHOWN_LINES:]) or "it printed nothing"


async def dry_run(
    engines: Engines, engine: str, command: Command, *, environ: Mapping[str, str], timeout_s: float
) -> tuple[str, ...] | None:
    """What the engine itself refuses of a command, in its own words; `None` when that cannot be told."""
    harmless = engines.dry_run(engine, command)
    if harmless is None:
        return None
    try:
        ended = await run_to_end(harmless, environ, timeout_s)
    except OSError:
        return None
    if ended.timed_out:
        return None
    tail = f"{ended.stdout[-20_000:]}\n{ended.stderr[-20_000:]}"
    return engines.read_dry_run(engine, Exit(ended.code, ended.signal, tail))

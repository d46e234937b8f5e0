"""Whether an engine accepts the commands that llmgw would run.

In: commands, the flag tables of the engine's programs, known orders of options.  Out: an `EngineReport`.  Pure.
Rules: a flag is called missing only if the text would have it; "could not check" is not "flags are missing"; a program
whose help is not there is a reason or a warning, never a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from attrs import evolve, frozen

from llmgw_core.engine.command import Command
from llmgw_core.engine.flags import FlagTable, Surface
from llmgw_core.engine.info import EngineInfo, Program, Rename
from llmgw_core.model.origin import LLMGW
from llmgw_core.plan.command_line import read_uses
from llmgw_core.plan.cut import maybe_lost, maybe_mixed
from llmgw_core.plan.verdict import Verdict, judge


class Outcome(Enum):
    ACCEPTED = "accepted"
    FINDINGS = "findings"
    UNCHECKED = "unchecked"


@frozen
class RoleCommand:
    """A command to be judged."""

    role: str
    """`head` or `worker`."""
    profile: str
    """Whose command it is: a profile's name, or `LLMGW` for the widest."""
    command: Command


@frozen
class FlagReport:
    flag: str
    role: str
    origin: str
    verdict: Verdict
    detail: str = ""
    suggestions: tuple[str, ...] = ()


@frozen
class DryRun:
    """What the engine itself said to a whole command, without starting anything."""

    role: str
    profile: str
    complaints: tuple[str, ...] | None
    """Its own words; empty: it accepted all; `None`: the run proved nothing."""


@frozen
class JudgedCommand:
    """A command line that was judged."""

    role: str
    profile: str
    argv: tuple[str, ...]


@frozen
class EngineReport:
    """What an engine-check found; `outcome` is the answer, the rest says why and from what."""

    engine: str
    executable: str | None
    engine_version: str | None
    source: str
    """How the help text was got."""
    outcome: Outcome
    reason: str = ""
    warnings: tuple[str, ...] = ()
    flags: tuple[FlagReport, ...] = ()
    dry_runs: tuple[DryRun, ...] = ()
    commands: tuple[JudgedCommand, ...] = ()


@frozen
class Comparison:
    """The judged flags of all commands, and what their texts are worth."""

    flags: tuple[FlagReport, ...]
    unchecked: str = ""
    """Why nothing can be said; empty when the flags' verdicts stand."""
    warnings: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        if self.unchecked:
            return Outcome.UNCHECKED
        return Outcome.ACCEPTED if all(flag.verdict.passes for flag in self.flags) else Outcome.FINDINGS


def compare(
    info: EngineInfo,
    commands: Sequence[RoleCommand],
    tables: Mapping[str, FlagTable],
    surfaces: Callable[[str], Sequence[Surface]] = lambda program: (),
) -> Comparison:
    """Judge every flag of `commands` by the table of the program that each one runs.

    Commands of a program without a table are left out. `surfaces` gives what was recorded of a program, oldest first;
    it is asked only where a flag is missing: recorded orders tell a removed flag from a cut, and who has the flag.
    """
    parts = []
    for program in info.programs:
        theirs = [each for each in commands if each.command.program == program.name]
        if program.name in tables and theirs:
            parts.append(_compare_program(info, program, theirs, tables[program.name], surfaces))
    return Comparison(
        flags=tuple(flag for part in parts for flag in part.flags),
        unchecked="; ".join(part.unchecked for part in parts if part.unchecked),
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )


def _compare_program(
    info: EngineInfo,
    program: Program,
    commands: Sequence[RoleCommand],
    table: FlagTable,
    surfaces: Callable[[str], Sequence[Surface]],
) -> Comparison:
    flags = _unique(flag for each in commands for flag in _judge_command(each, program, table, info.renames))
    doubt = f"the help of {program.name} looks cut short: {', '.join(table.cuts)}" if table.cuts else ""
    missing = _names(flags, Verdict.NOT_DOCUMENTED)
    if not (doubt or _names(flags, Verdict.UNCHECKED)) and len(missing) * 2 > len(_names(flags)):
        return _another_program(program, flags, missing)
    recorded = surfaces(program.name) if _names(flags, *_MAY_BE_LOST, *_MAY_BE_MIXED) else ()
    flags = _unjudge(flags, table, recorded)
    if _names(flags, Verdict.UNCHECKED):
        return Comparison(flags, unchecked=_why_unchecked(doubt, program, flags))
    return Comparison(flags, warnings=(doubt,) if doubt else ())


def _another_program(program: Program, flags: Sequence[FlagReport], missing: Collection[str]) -> Comparison:
    count = len(_names(flags))
    said = f"this is not the help of {program.name}: it has only {count - len(missing)} of the {count} flags"
    return Comparison(tuple(_unchecked(flag) if flag.flag in missing else flag for flag in flags), unchecked=said)


_MAY_BE_LOST = (Verdict.NOT_DOCUMENTED, Verdict.ABBREVIATION)
"""Verdicts on what is not there: where a text was cut, what seems short for a longer flag may have been one itself."""
_MAY_BE_MIXED = (Verdict.REMOVED, Verdict.BAD_CHOICE)
"""Verdicts by a description, which may be another option's where a hole begins within it."""


def _unjudge(flags: Sequence[FlagReport], table: FlagTable, recorded: Sequence[Surface]) -> tuple[FlagReport, ...]:
    """The flags, those unchecked that the recorded versions give reason to doubt."""
    orders = [surface.table for surface in recorded]
    lost = maybe_lost(_names(flags, *_MAY_BE_LOST), table, orders)
    mixed = maybe_mixed(_names(flags, *_MAY_BE_MIXED), table, orders)
    return tuple(
        _unchecked(flag)
        if flag.flag in lost
        else _unchecked(flag, _MIXED)
        if flag.flag in mixed
        else _with_versions(flag, table, recorded)
        for flag in flags
    )


def _why_unchecked(doubt: str, program: Program, flags: Sequence[FlagReport]) -> str:
    unsure = _names(flags, Verdict.UNCHECKED)
    lost = _names(flag for flag in flags if flag.detail == _LOST)
    said = [doubt] if doubt else []
    if lost == unsure and not doubt:
        said.append(f"the help of {program.name} seems to have a hole around {min(lost)}: other options there lack too")
    if lost:
        said.append(f"{len(lost)} of {len(_names(flags))} flags may stand in what is gone")
    if unsure - lost:
        count = len(unsure - lost)
        said.append(f"{count} of {len(_names(flags))} flags are there without a definition that can be trusted")
    return "; ".join((*said, "give the whole text"))


def _judge_command(
    each: RoleCommand, program: Program, table: FlagTable, renames: Sequence[Rename]
) -> Iterator[FlagReport]:
    # Positional words stand before all flags, so the operator's arguments, which come last, have none.
    extra = evolve(program.spelling, positionals=0)
    for ours, args, spelling in ((True, each.command.args, program.spelling), (False, each.command.extra_args, extra)):
        for use in read_uses(args, table, spelling):
            found = judge(use, table, spelling, renames)
            # A flag of ours that a profile's setting makes unacceptable is the profile's.
            origin = LLMGW if ours and found.verdict.passes else each.profile
            yield FlagReport(use.written, each.role, origin, found.verdict, found.detail, found.suggestions)


def _unique(flags: Iterable[FlagReport]) -> tuple[FlagReport, ...]:
    return tuple(dict.fromkeys(flags))


def _names(flags: Iterable[FlagReport], *verdicts: Verdict) -> frozenset[str]:
    """The flags that have one of these verdicts, or any where none is given."""
    return frozenset(flag.flag for flag in flags if not verdicts or flag.verdict in verdicts)


def _with_versions(flag: FlagReport, table: FlagTable, recorded: Sequence[Surface]) -> FlagReport:
    """A flag that is not documented here, with the recorded versions that have it."""
    if flag.verdict is not Verdict.NOT_DOCUMENTED or table.documents(flag.flag):
        return flag
    having = [surface.version for surface in recorded if surface.table.documents(flag.flag)]
    if not having:
        return flag
    span = having[0] if len(having) == 1 else f"{having[0]} to {having[-1]}"
    return evolve(flag, detail=f"{flag.detail}; recorded in {span}")


_LOST = "not in the text that was given"
_MIXED = "its description may be another option's: what should follow it is not in the text that was given"


def _unchecked(flag: FlagReport, why: str = _LOST) -> FlagReport:
    return evolve(flag, verdict=Verdict.UNCHECKED, detail=why, suggestions=())

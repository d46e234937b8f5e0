"""The flags that a Python argparse help text documents.

In: the text, as it was printed.  Out: a `FlagTable`, with the signs of a cut.  Pure; any text; `NotCompleteHelp` is all
that it raises.
Rules: an option is defined by the body, or named by the usage block; prose, banners and log lines define nothing. A
text that lost a definition shows a sign of it: the beginning is `usage:`; the end is where every option that the usage
block names is defined or, where the usage block names none, the epilogue by its own words: anything else may be what a
terminal wrote below. The option at an end that is not certain is in doubt.
Options that only the usage block names come last, in its order, with the state UNSTATED.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve, frozen

from llmgw_core.engine.flags import Flag, FlagState, FlagTable
from llmgw_core.errors import NotCompleteHelp
from llmgw_core.help.argparse_body import Block, Body, read_body
from llmgw_core.help.argparse_usage import Usage, read_usage
from llmgw_core.help.plain_text import clean, shown


@frozen
class Program:
    """What a reader must know of the program besides its text."""

    complete: str
    """The command that prints the complete help, for the messages."""
    called: str = ""
    """A pattern of what its usage line calls it; empty: anything."""
    epilogue: tuple[str, ...] = ()
    """How the lines that follow the last option begin, in one version or another; empty: nothing follows it."""
    ways_out: tuple[tuple[str, str], ...] = ()
    """What to do about a traceback: words of its last line, and the way out."""


_USAGE = re.compile(r"^usage:(?P<block>[^\n]*(?:\n {3,}\S[^\n]*)*)", re.MULTILINE | re.IGNORECASE)
_ERROR = re.compile(r"^\S[^\n]*?: error: [^\n]+", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"


def read_argparse_help(text: str, program: Program) -> FlagTable:
    """The flags of `text`; raises `NotCompleteHelp` when no flag may be judged by it."""
    text = clean(text)
    if not text.strip():
        raise NotCompleteHelp(f"no help text: it is empty; run {program.complete}")
    usage, ended, rest = _split(text)
    _refuse_another_program(usage, program)
    error = _ERROR.search(rest)
    body = read_body(rest, program.epilogue)
    if usage and usage.subcommands and len(body.flags) < 3:
        raise NotCompleteHelp(f"wrong level of help: it lists subcommands only; run {program.complete}")
    unstated = _unstated(usage, body.flags) if usage else ()
    if not body.flags and not unstated:
        raise NotCompleteHelp(_why_nothing(rest, error[0] if error else "", program))
    cuts = _cuts(usage, ended, body.flags, unstated, error is not None)
    cuts = (*cuts, *_end_cuts(body, program, unstated), *body.signs)
    ends_surely = _has_epilogue(body.last, program) or (text.endswith("\n") and not cuts)
    flags = _doubt_ends(body.flags, begins=rest is text and rest.startswith("  -"), ends=not ends_surely)
    return FlagTable((*flags, *unstated), cuts, counted=bool(usage and usage.options))


def _refuse_another_program(usage: Usage | None, program: Program) -> None:
    if usage and usage.program and not re.search(program.called, usage.program):
        raise NotCompleteHelp(f"this is the help of another program, {shown(usage.program)}; run {program.complete}")


def _doubt_ends(flags: tuple[Flag, ...], *, begins: bool, ends: bool) -> tuple[Flag, ...]:
    """The flags, with a doubt on the one that the text begins with, and on the one that it ends with."""
    if begins and flags:
        flags = (evolve(flags[0], doubt="the text that was given begins with it"), *flags[1:])
    if ends and flags:
        flags = (*flags[:-1], evolve(flags[-1], doubt="the text that was given may end within it"))
    return flags


def _split(text: str) -> tuple[Usage | None, bool, str]:
    """The usage block, whether anything follows it, and what follows, up to another program's usage."""
    match = _USAGE.search(text)
    if match is None:
        return None, False, text
    body = text[match.end() :]
    following = _USAGE.search(body)
    if following:
        body = body[: following.start()]
    ended = bool(body.strip())
    return read_usage(match["block"], ended), ended, body


def _unstated(usage: Usage, flags: Sequence[Flag]) -> tuple[Flag, ...]:
    defined = {name for flag in flags for name in flag.names}
    return tuple(
        Flag(
            names=option.names,
            arity=option.taken.arity,
            choices=option.taken.choices,
            open_choices=option.taken.open_choices,
            state=FlagState.UNSTATED,
        )
        for option in usage.options
        if defined.isdisjoint(option.names)
    )


def _cuts(
    usage: Usage | None, ended: bool, flags: Sequence[Flag], unstated: Sequence[Flag], is_error: bool
) -> tuple[str, ...]:
    if usage is None:
        return ("its beginning is gone: there is no usage line",)
    if not flags:
        # An argparse error prints the usage block and one line, and nothing is missing from it.
        return () if is_error else ("its end is gone: it describes none of the options that its usage names",)
    if unstated:
        named = len(usage.options)
        return (f"its end is gone: {len(unstated)} of the {named} options that its usage names are not described",)
    if not usage.options and not any("--help" in flag.names for flag in flags):
        return ("it does not document --help",)
    return ()


def _end_cuts(body: Body, program: Program, unstated: Sequence[Flag]) -> tuple[str, ...]:
    if body.last is None:
        return ()
    if program.epilogue and not _has_epilogue(body.last, program):
        return ("its end is gone: what stands below the last option is not there",)
    if not program.epilogue and not unstated and _is_broken_off(body.last):
        return ("its end is gone: it ends within an option",)
    return ()


def _has_epilogue(last: Block | None, program: Program) -> bool:
    return last is not None and any(line.startswith(program.epilogue) for line in last.after)


def _is_broken_off(last: Block) -> bool:
    """Whether the text ends before the last option's description, or within a word of it."""
    words = "\n".join((last.header, *last.description, *last.after)).rstrip()
    return words.endswith("-") or ("\n" not in words and "  " not in words)


def _why_nothing(text: str, error: str, program: Program) -> str:
    if _TRACEBACK in text:
        line = _last_of_traceback(text)
        way_out = next((way for words, way in program.ways_out if words in line), f"run {program.complete} by hand")
        return f"help could not be produced: {shown(line)}; {way_out}"
    if error:
        return f"an error message, not help: {shown(error)}; run {program.complete}"
    return f"no help text: it documents no option at all; run {program.complete}"


def _last_of_traceback(text: str) -> str:
    """The line that names the exception of the last traceback."""
    lines = text[text.rindex(_TRACEBACK) :].split("\n")[1:]
    return next((line.strip() for line in lines if line[:1].strip()), "a traceback without its last line")

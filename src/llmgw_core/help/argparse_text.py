"""The flags that a Python argparse help text documents.

In: the text, as it was printed.  Out: a `FlagTable`, with the signs of a cut.  Pure; any text; `NotCompleteHelp` is all
that it raises.
Rules: an option is defined by a line of exactly two blanks and a dash, or named by the usage block; prose, banners and
log lines define nothing. A text that lost a definition shows a sign of it: the beginning is `usage:`; the end is where
every option that the usage block names is defined or, where the usage block names none, the epilogue.
Options that only the usage block names come last, in its order, with the state UNSTATED.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

from llmgw_core.engine.flags import Flag, FlagState, FlagTable
from llmgw_core.errors import NotCompleteHelp
from llmgw_core.help.argparse_option import read_header, read_state
from llmgw_core.help.argparse_usage import Usage, read_usage


@frozen
class Program:
    """What a reader must know of the program besides its text."""

    complete: str
    """The command that prints the complete help, for the messages."""
    epilogue: bool = False
    """Whether its complete help ends with unindented lines after the last option."""
    ways_out: tuple[tuple[str, str], ...] = ()
    """What to do about a traceback: words of its last line, and the way out."""


_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_USAGE = re.compile(r"^usage:(?P<block>[^\n]*(?:\n {3,}\S[^\n]*)*)", re.MULTILINE | re.IGNORECASE)
_DEFINITION = re.compile(r"^  (?=-[^\s])", re.MULTILINE)
_SECTION = re.compile(r"[A-Za-z][^,;`]{0,60}:$", re.ASCII)
_ERROR = re.compile(r"^\S[^\n]*?: error: [^\n]+", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_LOG_LINE = re.compile(
    r"\[|\(|\d|(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b|\w*(?:Error|Warning|Exception)\b"
    r"|(?:Killed|Terminated|Aborted|Traceback|Segmentation)\b|[a-z][\w./-]*: ",
)


def read_argparse_help(text: str, program: Program) -> FlagTable:
    """The flags of `text`; raises `NotCompleteHelp` when no flag may be judged by it."""
    text = clean(text)
    if not text.strip():
        raise NotCompleteHelp(f"no help text: it is empty; run {program.complete}")
    usage, ended, body = _split(text)
    error = _ERROR.search(body)
    flags, last = _read_definitions(body)
    if usage and usage.subcommands and len(flags) < 3:
        raise NotCompleteHelp(f"wrong level of help: it lists subcommands only; run {program.complete}")
    unstated = _unstated(usage, flags) if usage else ()
    if not flags and not unstated:
        raise NotCompleteHelp(_why_nothing(text, error[0] if error else "", program))
    cuts = _cuts(usage, ended, flags, unstated, error is not None)
    if flags and program.epilogue and not _has_epilogue(last):
        cuts = (*cuts, "its end is gone: nothing follows the last option")
    elif flags and _is_broken_off(last):
        cuts = (*cuts, "its end is gone: it ends within an option")
    return FlagTable((*flags, *unstated), cuts)


def clean(text: str) -> str:
    """The text without colours and carriage returns."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return text.replace("\r", "")


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


def _read_definitions(body: str) -> tuple[tuple[Flag, ...], str]:
    """The defined options in order, and what follows the name of the last one."""
    flags = []
    block = ""
    for block in _DEFINITION.split(body)[1:]:
        flag = _read_definition(block)
        if flag:
            flags.append(flag)
    return tuple(flags), block


def _read_definition(block: str) -> Flag | None:
    first, _, rest = block.partition("\n")
    header, _, beside = first.partition("  ")
    read = read_header(header.rstrip())
    if read is None:
        return None
    names, taken = read
    lines = [beside]
    for line in rest.split("\n"):
        if line and not line.startswith("   "):
            break
        lines.append(line)
    said = read_state(lines, names)
    return Flag(
        names=names,
        arity=taken.arity,
        choices=taken.choices,
        open_choices=taken.open_choices,
        state=said.state,
        note=said.note,
        replaced_by=said.replaced_by,
    )


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


def _has_epilogue(last: str) -> bool:
    """Whether an unindented line that is neither a section's title nor a log line follows the last option."""
    following = last.split("\n")[1:]
    return any(line[:1].strip() and not _SECTION.match(line) and not _LOG_LINE.match(line) for line in following)


def _is_broken_off(last: str) -> bool:
    """Whether the text ends before the last option's description, or within a word of it: its state may be gone."""
    words = last.rstrip()
    return words.endswith("-") or ("\n" not in words and "  " not in words)


def _why_nothing(text: str, error: str, program: Program) -> str:
    if _TRACEBACK in text:
        line = _last_of_traceback(text)
        way_out = next((way for words, way in program.ways_out if words in line), f"run {program.complete} by hand")
        return f"help could not be produced: {line}; {way_out}"
    if error:
        return f"an error message, not help: {error.strip()}; run {program.complete}"
    return f"no help text: it documents no option at all; run {program.complete}"


def _last_of_traceback(text: str) -> str:
    """The line that names the exception of the last traceback."""
    lines = text[text.rindex(_TRACEBACK) :].split("\n")[1:]
    return next((line.strip() for line in lines if line[:1].strip()), "a traceback without its last line")

"""The flags that a text printed by `llama-server --help` documents.

In: any text.  Out: a `FlagTable`, or `NotCompleteHelp`.  Pure.
Rules: what a description says is never a flag; a definition that cannot be read is a sign that the text is not whole,
and its names are in doubt; so is the option at an end that is cut, which is left out where it has no description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from attrs import evolve

from llmgw_core.engine import Flag, FlagTable, NotCompleteHelp
from llmgw_core.help.plain_text import clean, shown
from llmgw_engine_llamacpp.help_entry import doubts, find_damage, split_entries
from llmgw_engine_llamacpp.help_option import read_option, unreadable_option
from llmgw_engine_llamacpp.info import RPC_SERVER
from llmgw_engine_llamacpp.rpc_help import looks_like_rpc_help, read_rpc_help

_SECTION = re.compile(r"-----+ (.+?) -----+\s*$")
_COMMAND = "llama-server --help"

_FEW = 3
"""How many lines of one kind are quoted."""

_COMMON = "common params"
_ALWAYS = ("sampling params", "example-specific params")
_SPECULATIVE = "speculative params"
_MOST_PATTERNS = 20
"""b10991 has three; each is compared with every name."""
_LAST = "--spec-default"
"""Stands last in b10068, b10434 and b10991."""
_OLD_LAST = re.compile(r"--(embd|fim|gpt-oss|vision)-\S+-(default|spec)$")
"""Before --spec-default and the speculative section were there, another of these presets stood last."""

_ERROR = re.compile(r"(error while handling argument .*|error: (?:invalid|unknown) argument: .*)", re.IGNORECASE)
_SHELL = re.compile(r".*(command not found|No such file or directory|error while loading shared libraries|Traceback).*")


def read_help(program: str, text: str) -> FlagTable:
    """The flags in the help of one of llama.cpp's two programs; raises `NotCompleteHelp` and nothing else."""
    text = clean(text)
    lines = text.split("\n")
    if not text.strip():
        raise NotCompleteHelp(f"the help text is empty; give the output of `{program} --help`")
    whole_line = text.endswith("\n")
    if program == RPC_SERVER:
        return read_rpc_help([line.rstrip() for line in lines], whole_line)
    return _read_server_help(lines, whole_line)


def _read_server_help(lines: Sequence[str], whole_line: bool) -> FlagTable:
    """`whole_line`: whether the last line ends as a line does."""
    sections = [match[1] for line in lines if (match := _SECTION.match(line))]
    _refuse_error_text(lines, sections)
    entries = split_entries(lines)
    options = [read_option(entry.line, entry.description) for entry in entries]
    end = _cut_end(options[-1] if options else None, sections)
    if options and end and not entries[-1].is_described:
        options.pop()
    damage = find_damage(lines)
    why = doubts(entries, damage, "" if whole_line and not end else "the text that was given may end within it")
    flags = [
        evolve(option, doubt=doubt) if option else unreadable_option(entry.line)
        for entry, option, doubt in zip(entries, options, why, strict=False)
    ]
    if not any(options):
        raise NotCompleteHelp(_why_nothing(lines))
    unreadable = (
        f"its line {entry.number} cannot be read: {shown(entry.line, 60)!r}"
        for entry, option in zip(entries, options, strict=False)
        if option is None
    )
    cuts = (*_cut_beginning(sections), *_cut_middle(sections, flags), *end, *damage.signs, *_few(unreadable))
    return FlagTable(tuple(_resolve_patterns(flags)), cuts)


def _few(signs: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(signs, _FEW))


def _refuse_error_text(lines: Sequence[str], sections: Sequence[str]) -> None:
    """On a wrong argument llama-server prints that argument's help only, with a hint at the complete one."""
    error = next((shown(match[1]) for line in lines if (match := _ERROR.search(line))), None)
    hint = any("to show complete usage, run with -h" in line for line in lines)
    if _COMMON in sections or not (error or hint):
        return
    said = f" ({error})" if error else ""
    raise NotCompleteHelp(
        f"this is what llama-server prints about one wrong argument{said}, not its complete help; give `{_COMMAND}`"
    )


def _why_nothing(lines: Sequence[str]) -> str:
    shell = next((shown(line) for line in lines if _SHELL.match(line)), None)
    if looks_like_rpc_help(lines):
        found = "this is the help of the RPC worker, not of llama-server"
    elif shell:
        found = f"llama-server did not run: {shell}"
    else:
        found = f"no option of llama-server is defined in the text, which ends in {_last_words(lines)!r}"
    return f"{found}; give the output of `{_COMMAND}`"


def _last_words(lines: Sequence[str]) -> str:
    return shown(next(line for line in reversed(lines) if line.strip()))


def _cut_beginning(sections: Sequence[str]) -> tuple[str, ...]:
    return () if _COMMON in sections else ("its first lines are gone",)


def _cut_middle(sections: Sequence[str], flags: Iterable[Flag]) -> tuple[str, ...]:
    new = any(name.startswith("--spec-draft-") or name == _LAST for flag in flags for name in flag.names)
    wanted = (*_ALWAYS, _SPECULATIVE) if new else _ALWAYS
    return tuple(f"its section {name!r} is gone" for name in wanted if name not in sections)


def _cut_end(last: Flag | None, sections: Sequence[str]) -> tuple[str, ...]:
    old = last and _SPECULATIVE not in sections and any(map(_OLD_LAST.match, last.names))
    return () if old or (last and _LAST in last.names) else ("its last lines are gone",)


def _resolve_patterns(flags: Sequence[Flag]) -> Iterable[Flag]:
    names = [name for flag in flags for name in flag.names]
    patterns = dict.fromkeys(name for flag in flags for name in flag.replaced_by if "*" in name)
    known = {pattern: _matching(pattern, names) for pattern in islice(patterns, _MOST_PATTERNS)}
    for flag in flags:
        found = [name for pattern in flag.replaced_by for name in known.get(pattern, [pattern])]
        yield evolve(flag, replaced_by=tuple(dict.fromkeys(found))) if flag.replaced_by else flag


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    wanted = re.compile(re.escape(pattern).replace(r"\*", "[a-z0-9-]+"))
    return [name for name in names if wanted.fullmatch(name)]

"""The flags that a text printed by `llama-server --help` documents.

In: any text.  Out: a `FlagTable`, or `NotCompleteHelp`.  Pure.
Rules: an option's definition starts at column 0 and its description stands at column 40, so what a description says is
never a flag; a definition that cannot be read is a sign that the text is not whole; where the end is cut, an option
without a word of description is left out, because the first words tell whether it was removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from attrs import evolve, field, frozen

from llmgw_core.engine import Flag, FlagTable, NotCompleteHelp
from llmgw_engine_llamacpp.help_option import read_option
from llmgw_engine_llamacpp.info import RPC_SERVER
from llmgw_engine_llamacpp.rpc_help import looks_like_rpc_help, read_rpc_help

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_SECTION = re.compile(r"-----+ (.+?) -----+$")
_INDENT = " " * 40
_COMMAND = "llama-server --help"

_COMMON = "common params"
_ALWAYS = ("sampling params", "example-specific params")
_SPECULATIVE = "speculative params"
_LAST = "--spec-default"
"""Stands last in b10068, b10434 and b10991."""
_OLD_LAST = re.compile(r"--(embd|fim|gpt-oss|vision)-\S+-(default|spec)$")
"""Before --spec-default and the speculative section were there, another of these presets stood last."""

_ERROR = re.compile(r"(error while handling argument .*|error: (?:invalid|unknown) argument: .*)", re.IGNORECASE)
_SHELL = re.compile(r".*(command not found|No such file or directory|error while loading shared libraries|Traceback).*")


@frozen
class _Entry:
    """A definition line with its description."""

    line: str
    number: int
    description: list[str] = field(factory=list)


def read_help(program: str, text: str) -> FlagTable:
    """The flags in the help of one of llama.cpp's two programs; raises `NotCompleteHelp` and nothing else."""
    lines = [line.rstrip() for line in _ANSI.sub("", text).splitlines()]
    if not any(lines):
        raise NotCompleteHelp(f"the help text is empty; give the output of `{program} --help`")
    return read_rpc_help(lines) if program == RPC_SERVER else _read_server_help(lines)


def _read_server_help(lines: Sequence[str]) -> FlagTable:
    sections = [match[1] for line in lines if (match := _SECTION.match(line))]
    _refuse_error_text(lines, sections)
    entries = _split_entries(lines)
    options = [read_option(entry.line, entry.description) for entry in entries]
    last = options[-1] if options else None
    end = _cut_end(last, sections)
    if last and end and not _is_described(entries[-1]):
        options.pop()
    flags = [option for option in options if option]
    if not flags:
        raise NotCompleteHelp(_why_nothing(lines))
    unreadable = (
        f"its line {entry.number} cannot be read: {entry.line[:60]!r}"
        for entry, option in zip(entries, options, strict=False)
        if option is None
    )
    cuts = (*_cut_beginning(sections), *_cut_middle(sections, flags), *end, *unreadable)
    return FlagTable(tuple(_resolve_patterns(flags)), cuts)


def _is_described(entry: _Entry) -> bool:
    return bool(entry.description) or "   " in entry.line[7:]  # up to column 7 short names are padded


def _split_entries(lines: Iterable[str]) -> list[_Entry]:
    """Definition lines with what stands indented below them; any other line (log output, a header) is passed over."""
    entries: list[_Entry] = []
    for number, line in enumerate(lines, 1):
        if re.match(r"--?[A-Za-z0-9]", line):
            entries.append(_Entry(line, number))
        elif entries and line.startswith(_INDENT):
            entries[-1].description.append(line.strip())
    return entries


def _refuse_error_text(lines: Sequence[str], sections: Sequence[str]) -> None:
    """On a wrong argument llama-server prints that argument's help only, with a hint at the complete one."""
    error = next((match[1] for line in lines if (match := _ERROR.search(line))), None)
    hint = any("to show complete usage, run with -h" in line for line in lines)
    if _COMMON in sections or not (error or hint):
        return
    said = f" ({error})" if error else ""
    raise NotCompleteHelp(
        f"this is what llama-server prints about one wrong argument{said}, not its complete help; give `{_COMMAND}`"
    )


def _why_nothing(lines: Sequence[str]) -> str:
    shell = next((line.strip() for line in lines if _SHELL.match(line)), None)
    if looks_like_rpc_help(lines):
        found = "this is the help of the RPC worker, not of llama-server"
    elif shell:
        found = f"llama-server did not run: {shell}"
    else:
        found = f"no option of llama-server is defined in the text, which ends in {_last_words(lines)!r}"
    return f"{found}; give the output of `{_COMMAND}`"


def _last_words(lines: Sequence[str]) -> str:
    return next(line for line in reversed(lines) if line).strip()[:120]


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
    """Replacements such as `--spec-ngram-*-size-n` become the documented flags that they stand for."""

    names = [name for flag in flags for name in flag.names]
    for flag in flags:
        found = [name for pattern in flag.replaced_by for name in _matching(pattern, names)]
        yield evolve(flag, replaced_by=tuple(dict.fromkeys(found))) if flag.replaced_by else flag


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    wanted = re.compile(re.escape(pattern).replace(r"\*", "[a-z0-9-]+"))
    return [name for name in names if wanted.fullmatch(name)]

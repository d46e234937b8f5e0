"""The flags that a text printed by `ggml-rpc-server --help` documents.

In: lines.  Out: a `FlagTable`, or `NotCompleteHelp`.  Pure.
Its options are indented and few: `  -H, --host HOST                  host to bind to`, in older builds `-H HOST, --host
HOST`. `--cache` has stood last in every known build (2025-05 to b10991).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from llmgw_core.engine import ONE, SWITCH, Flag, FlagTable, NotCompleteHelp
from llmgw_core.help.plain_text import shown

_USAGE = re.compile(r"usage: .*rpc-server\S* \[options\]", re.IGNORECASE)
_NAME = r"--?[A-Za-z][\w-]*"
_OPTION = re.compile(rf"  (?P<heads>{_NAME}(?: [A-Z<]\S*)?(?:, +{_NAME}(?: [A-Z<]\S*)?)*)(?:  +\S.*)?$")
_LAST = "--cache"
_SERVER_SECTION = re.compile(r"----- \S.* params -----")


def looks_like_rpc_help(lines: Sequence[str]) -> bool:
    return any(map(_USAGE.match, lines)) or any(re.match(r"  -H(?: HOST)?, +--host HOST", line) for line in lines)


def read_rpc_help(lines: Sequence[str], whole_line: bool) -> FlagTable:
    """`whole_line`: whether the last line ends as a line does."""
    flags = tuple(_read_option(match["heads"]) for line in lines if (match := _OPTION.match(line)))
    if any(map(_SERVER_SECTION.match, lines)):
        raise NotCompleteHelp(f"this is the help of llama-server, not of the RPC worker; {_WAY_OUT}")
    if not flags:
        last = shown(next(line for line in reversed(lines) if line))
        raise NotCompleteHelp(f"no option is defined in the text, which ends in {last!r}; {_WAY_OUT}")
    if not looks_like_rpc_help(lines) and not any("--port" in flag.names for flag in flags):
        raise NotCompleteHelp(f"this is not the help of an RPC worker; {_WAY_OUT}")
    cuts = tuple(_cuts(lines, flags))
    if cuts or not whole_line:
        flags = (*flags[:-1], evolve(flags[-1], doubt="the text that was given may end within it"))
    return FlagTable(flags, cuts)


_WAY_OUT = "give the output of `ggml-rpc-server --help 2>&1`"


def _cuts(lines: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    first = [] if any(map(_USAGE.match, lines)) or "--help" in flags[0].names else ["its first lines are gone"]
    return first + ([] if _LAST in flags[-1].names else ["its last lines are gone"])


def _read_option(heads: str) -> Flag:
    words = [head.split(" ", 1) for head in re.split(", +", heads)]
    takes = any(len(word) > 1 for word in words)
    return Flag(names=tuple(word[0] for word in words), arity=ONE if takes else SWITCH)

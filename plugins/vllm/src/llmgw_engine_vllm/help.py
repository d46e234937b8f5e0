"""The flags that a `vllm serve` help text documents.

In: the text.  Out: a `FlagTable`, hidden spellings included; raises `NotCompleteHelp`.  Pure, any text.
Its usage line names no options, so that the epilogue, which every version has, is the sign that the end is there. Only
its own words count: a prompt, a log line or the beginning of a section may stand below a cut as well.
"""

from __future__ import annotations

import re

from attrs import evolve

from llmgw_core.engine import Flag, FlagTable, NotCompleteHelp
from llmgw_core.help.argparse_text import Program, read_argparse_help
from llmgw_core.help.plain_text import clean

COMPLETE = "vllm serve --help=all"

_PROGRAM = Program(
    complete=f"{COMPLETE} (vllm serve --help up to 0.10.2)",
    called=r"\bvllm\b|^serve\b",
    # The tip stands in 0.9.2 and 0.10.2, the note from 0.10.2 on (0.32.0 is the last that was seen).
    epilogue=("When passing JSON ", "Tip: Use `vllm "),
    ways_out=(
        # vLLM builds its parser from the device's configuration (0.7.2 on); the variable helps from 0.28.
        ("Failed to infer device type", "run it on a GPU node, or with VLLM_TARGET_DEVICE=cpu"),
    ),
)
_OTHER_LEVELS = (
    # 0.11.2 and later, plain --help.
    (re.compile(r"^Config Groups:", re.MULTILINE), "it lists groups only"),
    # 0.10.2, --help=all: a search for "all", exit 0.
    (re.compile(r"^Parameters matching ", re.MULTILINE), "it is the result of a search"),
    (re.compile(r"^No group or (?:argument|parameter)s? matching ", re.MULTILINE), "it is a search without a result"),
)


def read_help(text: str) -> FlagTable:
    text = clean(text)
    for sign, what in _OTHER_LEVELS:
        if sign.search(text):
            raise NotCompleteHelp(f"wrong level of help: {what}; run {_PROGRAM.complete}")
    table = read_argparse_help(text, _PROGRAM)
    return evolve(table, flags=tuple(_with_hidden(flag, table) for flag in table.flags))


def _with_hidden(flag: Flag, table: FlagTable) -> Flag:
    """The flag with the spellings that vLLM accepts and does not list, by the flags that it does list."""
    positive, *others = flag.names
    hidden = []
    if positive.startswith(("--enable-", "--disable-")) and _opposite(positive) in others:
        # 0.33.0 lists --disable-x as the negative of --enable-x and goes on accepting --no-enable-x.
        hidden.append(f"--no-{positive[2:]}")
    if positive == "--optimization-level" and not table.documents("-O"):
        # From 0.12.0 -O<n> is rewritten to it; before, -O is listed with --compilation-config.
        hidden.append("-O")
    return evolve(flag, hidden=tuple(hidden)) if hidden else flag


def _opposite(name: str) -> str:
    enables = name.startswith("--enable-")
    return name.replace("--enable-", "--disable-", 1) if enables else name.replace("--disable-", "--enable-", 1)

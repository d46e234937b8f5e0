"""The options that the body of an argparse help text defines.

In: what follows the usage block.  Out: flags in order, each with the doubt that its lines leave.  Pure and total.
Rules: an option is defined by a line of exactly two blanks and a dash; its description is indented further. A line
that follows it directly at the left edge, a bracket that is never closed and a line cut at the width of the text say
that the definition is not as it was printed: then only its names are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve, frozen

from llmgw_core.engine.flags import Flag
from llmgw_core.help.argparse_option import read_header, read_state
from llmgw_core.help.plain_text import shown

_DEFINITION = re.compile(r"^  (?=-[^\s])", re.MULTILINE)
_SECTION = re.compile(r"[A-Za-z][^,;`]{0,60}:$", re.ASCII)
_LOG_LINE = re.compile(
    r"\[|\(|\d|(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b|\w*(?:Error|Warning|Exception)\b"
    r"|(?:Killed|Terminated|Aborted|Traceback|Segmentation)\b|[a-z][\w./-]*: ",
)
_INDENT = 2
"""What the split takes off each definition line."""


@frozen
class Block:
    """One option's lines."""

    header: str
    """The definition line without its two blanks."""
    description: tuple[str, ...]
    """The lines below it that belong to it, blank ones included."""
    after: tuple[str, ...]
    """The lines between them and the next definition."""

    @property
    def follower(self) -> str:
        """The line that follows the option directly, without a blank one between; empty where there is none."""
        direct = bool(self.after) and bool((self.description or (self.header,))[-1])
        return self.after[0] if direct and not _SECTION.match(self.after[0]) else ""


@frozen
class Body:
    flags: tuple[Flag, ...]
    signs: tuple[str, ...]
    """That the lines are not as they were printed."""
    last: Block | None
    """The lines of the last option."""


def read_body(body: str, openings: tuple[str, ...] = ()) -> Body:
    """`openings`: with which words the lines begin that may follow the last option."""
    blocks = [_split_block(text) for text in _DEFINITION.split(body)[1:]]
    width = _cut_width(blocks)
    flags = []
    for block in blocks:
        flag = _read_block(block)
        if flag:
            doubt = _doubt(block, width, openings)
            flags.append(evolve(flag, doubt=doubt) if doubt else flag)
    return Body(tuple(flags), _signs(blocks, width), blocks[-1] if blocks else None)


def _split_block(text: str) -> Block:
    header, *lines = text.split("\n")
    ends = next((at for at, line in enumerate(lines) if line and not line.startswith("   ")), len(lines))
    return Block(header, tuple(lines[:ends]), tuple(lines[ends:]))


def _read_block(block: Block) -> Flag | None:
    header, _, beside = block.header.partition("  ")
    read = read_header(header.rstrip())
    if read is None:
        return None
    names, taken = read
    said = read_state([beside, *block.description], names)
    return Flag(
        names=names,
        arity=taken.arity,
        choices=taken.choices,
        open_choices=taken.open_choices,
        state=said.state,
        note=said.note,
        replaced_by=said.replaced_by,
    )


def _doubt(block: Block, width: int | None, openings: tuple[str, ...]) -> str:
    if _is_open(block) or (width and width in (len(block.header) + _INDENT, *map(len, block.description))):
        return "its line is cut off in the text that was given"
    if block.follower and not block.follower.startswith(openings):
        return "its lines are broken in the text that was given"
    return ""


def _is_open(block: Block) -> bool:
    """Whether a bracket of the option's values is never closed."""
    header = block.header.partition("  ")[0]
    return any(header.count(left) > header.count(right) for left, right in ("{}", "[]", "()"))


def _cut_width(blocks: Sequence[Block]) -> int | None:
    """The column at which all lines were cut, where one of the widest breaks its choices."""
    broken = [block for block in blocks if _is_open(block)]
    if not broken:
        return None
    widest = max(max(len(block.header) + _INDENT, *map(len, ("", *block.description))) for block in blocks)
    return widest if any(len(block.header) + _INDENT == widest for block in broken) else None


def _signs(blocks: Sequence[Block], width: int | None) -> tuple[str, ...]:
    if width:
        return (f"its lines are cut at column {width}",)
    broken = (block.follower for block in blocks[:-1] if block.follower and not _LOG_LINE.match(block.follower))
    line = next(broken, "")
    return (f"its lines are broken, as by {shown(line, 60)!r}",) if line else ()

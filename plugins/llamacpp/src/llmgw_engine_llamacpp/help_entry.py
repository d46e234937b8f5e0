"""The entries of llama-server's help, and what was done to their lines since they were printed.

In: lines, as they were given.  Out: entries, each with the doubt that its lines leave; signs of damage.  Pure, total.
Rules: a definition starts at column 0 and its description stands at column 40. Lines that go on at column 0 were broken
anew, and then no entry can be trusted; lines that end at one column more often than wrapping does were cut there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from attrs import field, frozen

from llmgw_core.help.plain_text import shown

_INDENT = " " * 40
_DEFINITION = re.compile(r"--?[A-Za-z0-9]")
_FEW = 3
_SHARE = 10
"""Lines are wrapped at 110 columns, where 1 in 25 ends; more than 1 in 10 at the greatest width is a cut."""


@frozen
class Entry:
    """A definition line with its description."""

    line: str
    number: int
    description: list[str] = field(factory=list)
    widths: list[int] = field(factory=list)
    """How wide its lines were given, the definition first."""

    @property
    def is_described(self) -> bool:
        return bool(self.description) or self.is_described_beside

    @property
    def is_described_beside(self) -> bool:
        return "   " in self.line[7:]  # up to column 7 short names are padded


@frozen
class Damage:
    """What was done to the lines; nothing where there are no signs."""

    signs: tuple[str, ...] = ()
    broken: bool = False
    width: int = 0
    """The greatest width, where several lines have it."""
    cut: bool = False
    """Whether so many lines have it that they were cut there."""


def split_entries(lines: Iterable[str]) -> list[Entry]:
    """Definition lines with what stands indented below them; any other line (log output, a header) is passed over."""
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        if _DEFINITION.match(line):
            entries.append(Entry(line.rstrip(), number, widths=[len(line)]))
        elif entries and line.startswith(_INDENT):
            entries[-1].widths.append(len(line))
            if line.strip():
                entries[-1].description.append(line.strip())
    return entries


def find_damage(lines: Sequence[str]) -> Damage:
    broken = next((line for above, line in pairwise(_without_end(lines)) if _goes_on(above, line)), None)
    if broken:
        return Damage((f"its lines are broken, as by {shown(broken, 60)!r}",), broken=True)
    widths = Counter(len(line) for line in lines if line)
    width = max(widths, default=0)
    if widths[width] >= _FEW and widths[width] * _SHARE > widths.total():
        return Damage((f"its lines are cut at column {width}",), width=width, cut=True)
    return Damage(width=width if widths[width] > 1 else 0)


def _without_end(lines: Sequence[str]) -> Sequence[str]:
    """The lines up to the last option: what a terminal wrote below it breaks nothing."""
    ends = next((at for at in range(len(lines), 0, -1) if _DEFINITION.match(lines[at - 1])), 0)
    return lines[:ends]


def _goes_on(above: str, line: str) -> bool:
    belongs = (above.startswith(_INDENT) and above.strip()) or _DEFINITION.match(above)
    return bool(belongs and line.strip() and not line.startswith((_INDENT, "-")))


def doubts(entries: Sequence[Entry], damage: Damage, end: str) -> list[str]:
    """Why each option may not be as it was printed, empty where nothing speaks against it; `end`: why the last."""
    found = [_doubt(entry, damage) for entry in entries]
    if entries and entries[0].number == 1:
        found[0] = "the text that was given begins with it"
    if entries and end:
        found[-1] = end
    return found


def _doubt(entry: Entry, damage: Damage) -> str:
    if damage.broken or (damage.cut and damage.width in entry.widths):
        return "its lines are not whole in the text that was given"
    if entry.widths[0] == damage.width and not entry.is_described_beside:
        return "its line may be cut off in the text that was given"
    # Every option has a description, whose first words tell whether it was removed.
    return "" if entry.is_described else "its description is not in the text that was given"

"""The pages are laid out as they were meant: whole tables, and nothing twice."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "GLOSSARY")),
        *(ROOT / "docs").glob("*.md"),
        *ROOT.glob("plugins/*/README.md"),
    ]
)
LEAST_PARAGRAPH = 40
"""Characters; shorter ones may well stand under two headings: `It prints:`."""
RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")


def prose(text: str) -> str:
    """Without what stands in fences: programs repeat themselves."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def tables(text: str) -> Iterator[list[str]]:
    for block in re.split(r"\n(?!\|)", prose(text)):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        if rows:
            yield rows


def width(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row))


def faults(text: str) -> list[str]:
    found = []
    for header, *rows in tables(text):
        if not rows or not RULE.fullmatch(rows[0]):
            found.append(f"no table begins so: {header}")
        found += [f"another width: {row}" for row in rows if width(row) != width(header)]
        found += [f"twice: {row}" for row, count in Counter(rows[1:]).items() if count > 1]
    lines = prose(text).splitlines()
    found += [f"twice: {one}" for one, after in pairwise(lines) if one and one == after]
    paragraphs = Counter(each.strip() for each in re.split(r"\n\s*\n", prose(text)))
    return found + [f"twice: {each}" for each, n in paragraphs.items() if n > 1 and len(each) >= LEAST_PARAGRAPH]


@pytest.mark.parametrize("source", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_are_whole_and_nothing_is_said_twice(source: Path) -> None:
    assert faults(source.read_text(encoding="utf-8")) == []


TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n"
PARAGRAPH = "The same words, in the same order, and enough of them.\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TABLE, []),
        (f"{TABLE}| 3 | `x\\|y` |\n", []),
        (f"{TABLE}\n| 3 | 4 |\n", ["no table begins so: | 3 | 4 |"]),
        (f"{TABLE}| 3 |\n", ["another width: | 3 |"]),
        (f"{TABLE}| 1 | 2 |\n", ["twice: | 1 | 2 |", "twice: | 1 | 2 |"]),
        (f"{PARAGRAPH}\nOther.\n\n{PARAGRAPH}", [f"twice: {PARAGRAPH.strip()}"]),
        ("one\none\n", ["twice: one"]),
        ("```\none\none\n| x |\n```\n", []),
    ],
)
def test_what_is_no_layout_is_found(text: str, expected: list[str]) -> None:
    assert faults(text) == expected

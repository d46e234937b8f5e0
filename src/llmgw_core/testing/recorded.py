"""Real help texts and parser lists, which are third parties' and stay outside the repository.

They are looked for in `shared/engines` beside the checkout, or where LLMGW_RECORDED points; a test that needs one that
is not there is skipped with that reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EDGE_LINES, PLACES_BETWEEN = 25, 30


def recorded_directory() -> Path:
    """Where the texts are looked for; it may not exist."""
    named = os.environ.get("LLMGW_RECORDED")
    if named:
        return Path(named)
    checkout = Path(__file__).resolve().parents[3]
    return checkout.parent / "shared" / "engines"


def recorded_helps(prefix: str) -> list[Path]:
    """The recorded complete help texts whose names begin so (`vllm-`), by name; none where there are none."""
    return sorted((recorded_directory() / "help").glob(f"{prefix}*.help.txt"))


def recorded_help(name: str) -> str:
    """The text of `help/<name>`; skips the test where it is absent."""
    return _read("help", name)


def recorded_parser(name: str) -> dict[str, Any]:
    """The list that an engine's own parser gave, `parsers/<name>`; skips the test where it is absent."""
    parsed: dict[str, Any] = json.loads(_read("parsers", name))
    return parsed


def cut_between_lines(text: str, *, everywhere: bool = False) -> Iterator[tuple[str, str]]:
    """What stands before and after each of many cuts: near both ends, between all lines; elsewhere, at some 30."""
    lines = text.splitlines(keepends=True)
    step = 1 if everywhere else max(len(lines) // PLACES_BETWEEN, 1)
    for at in range(1, len(lines)):
        if min(at, len(lines) - at) <= EDGE_LINES or at % step == 0:
            yield "".join(lines[:at]), "".join(lines[at:])


def _read(kind: str, name: str) -> str:
    path = recorded_directory() / kind / name
    if not path.exists():
        pytest.skip(f"no recorded {kind}/{name} (looked in {recorded_directory()}; set LLMGW_RECORDED)")
    return path.read_text(encoding="utf-8")

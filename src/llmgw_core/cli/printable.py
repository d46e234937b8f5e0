"""What others wrote, made fit for a terminal: a node's facts must not move an operator's cursor, nor add a line.

In: a text, or plain data with texts in it.  Out: the same, printable.  Pure and total.
Rule: a character that is not printable becomes JSON's escape of it, so that what was JSON stays the same JSON.
"""

from __future__ import annotations

import json
from typing import Any

_LAYOUT = frozenset("\n\t")
"""What our own renderings are made of."""


def printable_text(text: str) -> str:
    """`text` on one line."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable(value: Any) -> Any:
    """Plain data with all its texts on one line each, keys too."""
    if isinstance(value, str):
        return printable_text(value)
    if isinstance(value, dict):
        return {printable(key): printable(each) for key, each in value.items()}
    return [printable(each) for each in value] if isinstance(value, list | tuple) else value


def printable_layout(text: str) -> str:
    """A whole rendering: its lines stay lines."""
    return "".join(char if char in _LAYOUT else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]

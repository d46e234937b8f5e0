"""A given text as the readers want it, and a piece of it as a message may show it.

In: any text.  Out: text.  Pure, total and linear.
Rule: only `\\n`, `\\r\\n` and `\\r` end a line: what else `str.splitlines` splits at may stand within a description.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_LINE_END = re.compile(r"\r+\n?")
_LONGEST = 120


def clean(text: str) -> str:
    """The text without byte order mark and colours, its lines ended by `\\n`, its tabs as the blanks they stand for."""
    text = text.removeprefix("\ufeff")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = _LINE_END.sub("\n", text)
    return text.expandtabs(8) if "\t" in text else text


def shown(text: str, longest: int = _LONGEST) -> str:
    """A piece of a text on one line, printable and short: it may come from a file that is no text at all."""
    words = text.strip()
    kept = "".join(char if char.isprintable() else "?" for char in words[:longest])
    return f"{kept}…" if len(words) > longest else kept

"""Which of an engine's last lines says why it ended.

In: the tail of a log, oldest line first, and signs by which causes are known.  Out: lines.  Pure and total.
Rules: never the first line, which is a banner or a usage dump; the last line that shows a known cause; where several
causes show, the sign that is listed first; else the last line that looks like an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llmgw_core.engine.health import FailureKind

Sign = tuple[FailureKind, re.Pattern[str]]

_PARSER_ERROR = re.compile(r"^\S.*?: error: ")
_ERROR = re.compile(r"\b\w*(?:Error|Exception|Interrupt)\b|\b(?:ERROR|CRITICAL|FATAL|[Ff]atal|[Ee]rror:)|\bassert\b")
_LONGEST = 1000


def log_lines(log: str) -> list[str]:
    """The lines that say anything, without blanks around them."""
    return [line.strip()[:_LONGEST] for line in log.splitlines() if line.strip()]


def find_cause(lines: Sequence[str], signs: Sequence[Sign]) -> tuple[FailureKind, str] | None:
    """The kind and the line of the first sign that any line shows."""
    for kind, sign in signs:
        for line in reversed(lines):
            if sign.search(line):
                return kind, line
    return None


def parser_error(lines: Sequence[str]) -> str | None:
    """The line with which argparse refuses a command (`prog: error: …`); a hint may follow it, usage stands before."""
    return next((line for line in reversed(lines) if _PARSER_ERROR.search(line)), None)


def last_error(lines: Sequence[str], farewells: re.Pattern[str] | None = None) -> str | None:
    """The last line that looks like an error and is not one that only points to another, or else the last line."""
    errors = [line for line in lines if _ERROR.search(line)]
    telling = [line for line in errors if farewells is None or not farewells.search(line)]
    for found in (telling, errors, lines):
        if found:
            return found[-1]
    return None

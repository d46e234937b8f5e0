"""How an end is told to people, and how much of an engine's last words.  Pure."""

from __future__ import annotations

import signal

from llmgw_core.engine.health import Exit

LINES, CHARACTERS = 50, 8000


def exit_text(exit: Exit) -> str:
    """`exit code 1`, `signal 9 (SIGKILL)`."""
    if exit.signal is None:
        return str(exit)
    try:
        return f"{exit} ({signal.Signals(exit.signal).name})"
    except ValueError:
        return str(exit)


def without_key(text: str, key: str) -> str:
    """An engine's own words, of which some print their whole configuration."""
    return text.replace(key, "…") if key else text


def last_lines(text: str, lines: int = LINES) -> str:
    kept = [line for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(kept)[-CHARACTERS:]

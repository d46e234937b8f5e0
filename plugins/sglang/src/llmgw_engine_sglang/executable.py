"""The two ways to call SGLang: its module, or its console script, which has subcommands."""

from __future__ import annotations

from collections.abc import Sequence


def is_script(executable: Sequence[str]) -> bool:
    """Whether it is `sglang` itself, which wants `serve` first (from 0.5.6)."""
    return bool(executable) and executable[-1].rpartition("/")[2] == "sglang"


def serve_words(executable: Sequence[str]) -> tuple[str, ...]:
    """What comes before all flags."""
    return ("serve",) if is_script(executable) else ()

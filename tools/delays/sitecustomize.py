"""Slow starts, links and writes, in each `llmgw` with this directory in PYTHONPATH, where `tools/pauses.py` puts it.

A pause stops a process wherever it is, most often where it waits in any case. Here each message and each write comes
late at random and by itself, so that what was to happen meanwhile does: a race between two of them shows in one run.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

LONGEST_S = 1.5


def delay_s() -> float:
    """Mostly short, at times long: 0.4 s in the mean."""
    return LONGEST_S * random.random() ** 3  # noqa: S311 - nothing secret


def slow(owner: Any, name: str) -> None:
    import trio

    real = getattr(owner, name)

    async def late(*given: Any) -> Any:
        await trio.sleep(delay_s())
        return await real(*given)

    setattr(owner, name, late)


def main() -> None:
    program, *words = [Path(word).name for word in sys.orig_argv[1:]] or [""]
    if program in ("llmgw", "llmgw-sim"):
        time.sleep(delay_s())
    if program == "llmgw":
        from llmgw_core.net.link import Link

        slow(Link, "say_text")
    if program == "llmgw" and "control" in words[:1]:
        from llmgw_core.control.writer import Writer

        slow(Writer, "write")


main()

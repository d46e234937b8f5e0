"""What keeps the memory of a thousand links small, and the loop going meanwhile.

Garbage is collected in small portions: a link that ends leaves none behind (see `net.door`), and a collection over all
links would stop the loop (measured: 100 ms with 1,000).
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

import trio

from llmgw_core.control.fleet import Fleet

YOUNG = 10_000
"""New objects that start a collection of the young ones, which takes some milliseconds."""
QUIET_S = 5.0
ENOUGH = 50
"""So much must have moved that memory is worth giving back."""


def calm_down() -> None:
    """What exists at the start stays, and what is old is looked through very seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 100, 100)


async def give_back_when_quiet(fleet: Fleet) -> None:
    """What a thousand handshakes needed at once, glibc keeps until it is asked (measured: 12 to 40 kB a link)."""
    given = 0
    while True:
        before = fleet.moved
        await trio.sleep(QUIET_S)
        if fleet.moved == before and before - given >= ENOUGH:
            given = before
            with suppress(OSError, AttributeError):  # other systems have no such word
                ctypes.CDLL(None).malloc_trim(0)

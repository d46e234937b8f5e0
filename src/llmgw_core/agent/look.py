"""A read that may block for ever (a driver in trouble, a dead file system), so that it keeps nothing else waiting.

Rules: it is done in a thread, which is left alone when the time is up or the agent is to stop; while such a thread is
there, no second one is started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio
from attrs import define, field

T = TypeVar("T")
LOOK_LIMIT_S = 5.0


@define(eq=False)
class Look(Generic[T]):
    """One thing that is read again and again."""

    read: Callable[[], T]
    otherwise: T
    """What to say when it was not read in time."""
    limit_s: float = LOOK_LIMIT_S
    _turn: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(1))

    async def take(self) -> T:
        with trio.move_on_after(self.limit_s):
            # An abandoned thread keeps its turn until it ends.
            return await trio.to_thread.run_sync(self.read, abandon_on_cancel=True, limiter=self._turn)
        return self.otherwise

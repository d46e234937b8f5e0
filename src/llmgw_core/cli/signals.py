"""An end by a signal that takes what was started with it: a lost terminal must leave no engine's help running."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable

import trio

_ENDING = (signal.SIGTERM, signal.SIGHUP)


async def until_signalled(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work; on SIGTERM or SIGHUP cancel it, let it clean up, and exit as the signal's victim would."""
    received: list[int] = []
    async with trio.open_nursery() as nursery:

        async def wait(task_status: trio.TaskStatus[None]) -> None:
            with trio.open_signal_receiver(*_ENDING) as signals:
                task_status.started()
                async for number in signals:
                    received.append(number)
                    nursery.cancel_scope.cancel()
                    return

        await nursery.start(wait)  # before the work starts anything
        await work()
        nursery.cancel_scope.cancel()
    if received:
        sys.exit(128 + received[0])

"""Runs one process's data path until it is to stop, and then until what it works on is answered."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

import trio

from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.listener import Listener, NewClient
from llmgw_core.gateway.poller import Poller
from llmgw_core.gateway.worker import Worker

YOUNG = 50_000
"""New objects that start a collection: a request leaves no garbage but what it counts itself."""
LAST_LOOK_S = 0.05
_log = logging.getLogger("llmgw.gateway")


async def serve(
    worker: Worker,
    poller: Poller,
    listeners: Sequence[tuple[socket.socket, NewClient]],
    log: AccessLog | None,
    until_stopped: Callable[[], Awaitable[None]],
    drain_s: float,
) -> None:
    """`drain_s`: how long requests may go on after `until_stopped` has returned."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 100, 100)
    opened = [Listener(worker, listener, new_client) for listener, new_client in listeners]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        nursery.start_soon(worker.sweep_for_ever)
        if log is not None:
            nursery.start_soon(log.write_for_ever)
        await until_stopped()
        for each in opened:
            each.close()
        worker.stop()
        with trio.move_on_after(drain_s) as patience:
            while worker.is_busy:  # noqa: ASYNC110 - requests end in callbacks, which know no events
                await trio.sleep(LAST_LOOK_S)
        if patience.cancelled_caught:
            _log.warning("stopped with requests in flight", extra={"after_s": f"{drain_s:g}"})
        nursery.cancel_scope.cancel()

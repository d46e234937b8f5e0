"""Runs one process's data path until it is to stop, and then until what it works on is answered."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from attrs import frozen

from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.listener import Listener, NewClient
from llmgw_core.gateway.poller import Poller
from llmgw_core.gateway.worker import Worker
from llmgw_core.net.racing import first

YOUNG = 50_000
"""New objects that start a collection: a request leaves no garbage but what it counts itself."""
LAST_LOOK_S = 0.05
_log = logging.getLogger("llmgw.gateway")


@frozen(kw_only=True)
class StopTimes:
    """Of a process that is asked to stop, in seconds."""

    delay_s: float = 0.0
    """How long it still takes connections, while it says that it stops: a load balancer looks now and then."""
    drain_s: float = 120.0
    """How long the requests that it has then may go on."""


async def serve(
    worker: Worker,
    poller: Poller,
    listeners: Sequence[tuple[socket.socket, NewClient]],
    log: AccessLog | None,
    until_asked: Callable[[], Awaitable[None]],
    times: StopTimes,
    until_hurried: Callable[[], Awaitable[None]] = trio.sleep_forever,
) -> None:
    """Until `until_asked` has returned, and then as `times` says, or until `until_hurried` has returned."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 100, 100)
    doors = [Listener(worker, listener, new_client) for listener, new_client in listeners]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        nursery.start_soon(worker.sweep_for_ever)
        if log is not None:
            nursery.start_soon(log.write_for_ever)
        await until_asked()
        await first(until_hurried, partial(_drain, worker, doors, times))
        for client in worker.clients():
            client.cut()
        await trio.sleep(LAST_LOOK_S)  # what is said last goes out
        nursery.cancel_scope.cancel()


async def _drain(worker: Worker, doors: Sequence[Listener], times: StopTimes) -> None:
    worker.begin_stop()
    await trio.sleep(times.delay_s)
    for door in doors:
        if door.is_for_users:
            door.close()
    await trio.sleep(LAST_LOOK_S)  # what has come is read: of a connection closed before that, the peer hears a reset
    worker.stop()
    with trio.move_on_after(times.drain_s) as patience:
        while worker.is_busy:  # noqa: ASYNC110 - callbacks know no events
            await trio.sleep(LAST_LOOK_S)
    if patience.cancelled_caught:
        busy = sum(client.is_busy for client in worker.clients())
        _log.warning("requests are cut", extra={"requests": busy, "after_s": f"{times.drain_s:g}"})

"""A gateway in the control plane's own process: for small fleets and for trying things out.

It acknowledges as every gateway does. It has no link and no file; when the control plane ends, so do its requests.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Protocol

import trio

from llmgw_core.gateway.board import Board
from llmgw_core.gateway.listener import NewClient
from llmgw_core.gateway.poller import Poller
from llmgw_core.gateway.routing import Routing
from llmgw_core.gateway.serving import serve
from llmgw_core.gateway.settings import DataSettings
from llmgw_core.gateway.worker import Worker
from llmgw_core.model.route import Lingering, RouteTable

NAME = "embedded"


class Subscription(Protocol):
    """What the control plane gives a gateway."""

    async def next_table(self) -> RouteTable: ...

    def taken(self, version: int, lingering: Iterable[Lingering] = ()) -> None: ...

    def close(self) -> None: ...


class Subscribable(Protocol):
    def subscribe(self, name: str) -> Subscription: ...


async def run_embedded(
    doors: Sequence[tuple[socket.socket, NewClient]], settings: DataSettings, routes: Subscribable
) -> None:
    """Until cancelled."""
    board, poller = Board(), Poller()
    worker = Worker(settings, poller, board)
    routing = Routing(board, lambda routed: worker.take(routed.table, routed.places), None)
    subscription = routes.subscribe(NAME)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_take, routing, subscription)
            nursery.start_soon(_tell_taken, routing, subscription)
            await serve(worker, poller, doors, None, trio.sleep_forever, 0.0)
    finally:
        subscription.close()


async def _take(routing: Routing, subscription: Subscription) -> None:
    while True:
        await routing.take(await subscription.next_table())


async def _tell_taken(routing: Routing, subscription: Subscription) -> None:
    said = None
    while True:
        said = await routing.next_taken(said)
        subscription.taken(*said)

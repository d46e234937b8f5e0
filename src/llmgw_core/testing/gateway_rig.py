"""A gateway's data path on real sockets, between scripted engines and raw clients.

Rules: nobody sweeps but `pass_time`, which sets the gateway's clock forward; when a rig ends, nothing may be counted as
in flight, and the gateway may have met no fault of its own.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import trio
from attrs import define, evolve, field

from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.board import ATTEMPTS, IN_FLIGHT, KEY_CELLS, KEYS, Board, attempt_cell, key_cell
from llmgw_core.gateway.client import Client
from llmgw_core.gateway.listener import Listener, NewClient, open_listeners
from llmgw_core.gateway.place import Places, assign_places
from llmgw_core.gateway.poller import Poller
from llmgw_core.gateway.settings import DataSettings
from llmgw_core.gateway.worker import Worker
from llmgw_core.model.route import ModelRoute, RouteTable, UserKey
from llmgw_core.testing.http_words import post
from llmgw_core.testing.raw_client import Answer, RawClient
from llmgw_core.testing.scripted_engine import DEADLINE_S, Engine, Step


@define
class Clock:
    """It stands still until it is set forward: what a busy machine takes is no time of the gateway's."""

    ahead_s: float = 0.0
    runs: bool = False
    """Where it is measured what requests take."""
    begun: float = field(factory=time.monotonic)

    def __call__(self) -> float:
        return (time.monotonic() if self.runs else self.begun) + self.ahead_s


def user_key(text: str, name: str = "k1", **limits: Any) -> UserKey:
    return UserKey(name, sha256(text.encode()).hexdigest(), **limits)


@define(eq=False)
class Rig:
    nursery: trio.Nursery
    board: Board
    poller: Poller
    worker: Worker
    listener: Listener
    port: int
    clock: Clock
    now: list[float]
    """The time of day by which keys expire; its one number may be changed."""
    places: Places = field(factory=Places)
    version: int = 0
    _clients: list[RawClient] = field(factory=list)

    def take(self, *models: ModelRoute, keys: Iterable[UserKey] = ()) -> None:
        self.version += 1
        table = RouteTable(self.version, models, tuple(keys))
        self.places = assign_places(self.places, table, self.places.attempts)
        self.worker.take(table, self.places)

    async def engine(self, *scripts: Sequence[Step], **more: Any) -> Engine:
        engine = Engine(scripts, **more)
        await self.nursery.start(engine.serve)
        return engine

    async def route(self, *engines: Engine, name: str = "m", keys: Iterable[UserKey] = (), **more: Any) -> None:
        """One model, served by those."""
        targets = tuple(evolve(each.target, replica=f"{name}/{at}") for at, each in enumerate(engines, 1))
        for engine, target in zip(engines, targets, strict=True):
            engine.name = target.replica
        self.take(ModelRoute(name, targets=targets, **more), keys=keys)

    async def client(self, *, small: bool = False) -> RawClient:
        """`small`: one that the kernel keeps little for."""
        connection = trio.socket.socket()
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with trio.fail_after(DEADLINE_S):
            await connection.connect(("127.0.0.1", self.port))
        client = RawClient(trio.SocketStream(connection))
        self._clients.append(client)
        return client

    async def ask(self, request: bytes | None = None) -> Answer:
        """On a connection of its own."""
        client = await self.client()
        found = await client.ask(post() if request is None else request)
        await client.leave()
        return found

    def pass_time(self, seconds: float) -> None:
        self.clock.ahead_s += seconds
        self.worker.sweep()

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        with trio.move_on_after(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - callbacks know no events
                await trio.sleep(0.002)
            return
        raise AssertionError(f"not within {DEADLINE_S:g} s: {what or condition}")

    def in_flight(self, name: str = "m/1") -> int:
        return self.board.in_flight(self.places.attempts[f"{name}@1"])

    def counts(self) -> dict[str, float]:
        """What the metrics say, by name and labels as they stand there; zeros are left out."""
        lines = [line for line in self.worker.metrics().decode().splitlines() if not line.startswith("#")]
        split = [line.rpartition(" ") for line in lines]
        return {name: float(value) for name, _, value in split if float(value)}

    async def end(self) -> None:
        for client in self._clients:
            await client.stream.aclose()
        for flow in [*self.worker.flows]:
            flow.close()
        for row in self.board.rows:
            assert not any(row[attempt_cell(0) : attempt_cell(ATTEMPTS)]), "requests that nobody ended"
            assert not any(row[key_cell(0) + IN_FLIGHT : key_cell(KEYS) : KEY_CELLS]), "requests of keys likewise"


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


@asynccontextmanager
async def a_gateway(
    *,
    portable: bool = False,
    log: AccessLog | None = None,
    board: Board | None = None,
    number: int = 0,
    authenticates: bool = False,
    new_client: NewClient = Client,
    **settings: Any,
) -> AsyncIterator[Rig]:
    clock, faults, now = Clock(), _Faults(), [1_800_000_000.0]
    board = board or Board()
    poller = Poller(portable=portable, clock=clock)
    given = DataSettings(authenticates=authenticates, **settings)
    worker = Worker(given, poller, board, number, log, lambda: now[0])
    [[accepting]] = open_listeners("127.0.0.1", 0, 1)
    port = accepting.getsockname()[1]
    listener = Listener(worker, accepting, new_client)
    logging.getLogger("llmgw.gateway").addHandler(faults)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            rig = Rig(nursery, board, poller, worker, listener, port, clock, now)
            yield rig
            nursery.cancel_scope.cancel()
    finally:
        logging.getLogger("llmgw.gateway").removeHandler(faults)
        if accepting.fileno() >= 0:
            listener.close()
        with trio.CancelScope(shield=True):
            await rig.end()
        poller.shut()
    assert not faults.seen, faults.seen[0]

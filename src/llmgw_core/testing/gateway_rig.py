"""A gateway's data path on real sockets, engines that do what a test has written down, and clients that say any bytes.

Rules: a wait that is not over after `DEADLINE_S` fails; nobody sweeps but `pass_time`, which sets the gateway's clock
forward; when a rig ends, nothing may be counted as in flight, and the gateway may have met no fault of its own.
Engines, clients and the gateway stand in one module, since every test needs the words of all three.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from hashlib import sha256
from struct import pack
from typing import Any

import trio
from attrs import define, evolve, field, frozen

from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.board import ATTEMPTS, IN_FLIGHT, KEY_CELLS, KEYS, Board, attempt_cell, key_cell
from llmgw_core.gateway.client import Client
from llmgw_core.gateway.listener import Listener, NewClient, open_listeners
from llmgw_core.gateway.place import Places, assign_places
from llmgw_core.gateway.poller import Poller
from llmgw_core.gateway.settings import DataSettings
from llmgw_core.gateway.worker import Worker
from llmgw_core.model.route import ModelRoute, RouteTable, Target, UserKey

DEADLINE_S = 5.0
CHAT = "/v1/chat/completions"
EVENT_STREAM = "text/event-stream"


class Act(Enum):
    """What an engine does besides sending."""

    CLOSE = "close"
    RESET = "reset"
    SILENCE = "silence"
    """Nothing, until the gateway has closed the connection."""


Step = bytes | trio.Event | Act
"""Bytes are sent; an event is waited for, as long as the gateway is there."""


@frozen
class Received:
    """A request, as an engine got it."""

    line: str
    fields: tuple[tuple[str, str], ...]
    body: bytes
    connection: int

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each.lower() == name]


@define(eq=False)
class Engine:
    """`scripts`: for the first request, the second, ...; the last for all that follow."""

    scripts: Sequence[Sequence[Step]]
    key: str = ""
    reads_bodies: bool = True
    """Whether it waits for a body, or answers as soon as the head is there and reads no more until `may_read`."""
    name: str = "m/1"
    port: int = 0
    requests: list[Received] = field(factory=list)
    heads: int = 0
    """Requests whose head has come."""
    connections: int = 0
    left: int = 0
    """Connections that the gateway has ended."""
    may_read: trio.Event = field(factory=trio.Event)
    _changed: trio.Event = field(factory=trio.Event)

    @property
    def target(self) -> Target:
        return Target(self.name, 1, "127.0.0.1", self.port, self.key)

    async def until(self, condition: Callable[[], Any]) -> None:
        with trio.fail_after(DEADLINE_S):
            while not condition():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._attend, listeners)
            task_status.started()

    async def _attend(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        line = _Line(self, stream, self.connections)
        self._tell()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.listen)
            await line.work()
            nursery.cancel_scope.cancel()

    def next_script(self) -> Sequence[Step]:
        return self.scripts[min(len(self.requests), len(self.scripts)) - 1]


@define(eq=False)
class _Line:
    """A connection, at the engine's end."""

    engine: Engine
    stream: trio.SocketStream
    number: int
    heard: bytearray = field(factory=bytearray)
    _more: trio.Event = field(factory=trio.Event)
    _gone: trio.Event = field(factory=trio.Event)

    async def listen(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self.stream.receive_some(65536):
                self.heard += data
                self._more.set()
                self._more = trio.Event()
                if not self.engine.reads_bodies and b"\r\n\r\n" in self.heard:
                    await self.engine.may_read.wait()
        self._gone.set()
        self._more.set()
        self.engine.left += 1
        self.engine._tell()

    async def work(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self._hear_request():
                for step in self.engine.next_script():
                    if isinstance(step, bytes):
                        await self.stream.send_all(step)
                    elif step is Act.CLOSE or step is Act.RESET:
                        if step is Act.RESET:
                            self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
                        self.stream.socket.close()
                        return
                    elif step is Act.SILENCE:
                        await self._gone.wait()
                    else:
                        await self._wait_for(step)

    async def _wait_for(self, event: object) -> None:
        assert isinstance(event, trio.Event)
        async with trio.open_nursery() as nursery:

            async def leave() -> None:
                await self._gone.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(leave)
            await event.wait()
            nursery.cancel_scope.cancel()

    async def _hear_request(self) -> bool:
        while b"\r\n\r\n" not in self.heard:
            if self._gone.is_set():
                return False
            await self._more.wait()
        self.engine.heads += 1
        self.engine._tell()
        head, _, _ = bytes(self.heard).partition(b"\r\n\r\n")
        line, fields = split_head(head)
        length = sum(int(value) for name, value in fields if name.lower() == "content-length")
        end = len(head) + 4 + length
        while len(self.heard) < end and self.engine.reads_bodies:
            if self._gone.is_set():
                return False
            await self._more.wait()
        body = bytes(self.heard[len(head) + 4 : end])
        del self.heard[:end]
        self.engine.requests.append(Received(line, fields, body, self.number))
        self.engine._tell()
        return True


def split_head(head: bytes) -> tuple[str, tuple[tuple[str, str], ...]]:
    line, *lines = head.decode("latin-1").split("\r\n")
    return line, tuple((name, value) for name, _, value in (each.partition(": ") for each in lines))


# What engines say.


def answer(body: bytes = b'{"ok":1}', status: str = "200 OK", *fields: str, kind: str = "application/json") -> bytes:
    head = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *fields]
    return "\r\n".join([*head, "", ""]).encode() + body


def stream_head(*fields: str, kind: str = EVENT_STREAM) -> bytes:
    head = ["HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked", *fields]
    return "\r\n".join([*head, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number: int, size: int = 0) -> bytes:
    return chunk(b'data: {"n":%d,"x":"%b"}\n\n' % (number, b"x" * size))


LAST_CHUNK = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
NO_MORE = b"0\r\n\r\n"


# What clients say.


def wish(model: str = "m", **more: Any) -> bytes:
    return json.dumps({"model": model, **more}).encode()


def post(body: bytes | None = None, *fields: str, path: str = CHAT, version: str = "1.1") -> bytes:
    body = wish() if body is None else body
    head = [f"POST {path} HTTP/{version}", "host: gateway", f"content-length: {len(body)}", *fields]
    return "\r\n".join([*head, "", ""]).encode() + body


def get(path: str = "/v1/models", *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: gateway", *fields, "", ""]).encode()


@frozen
class Answer:
    status: int
    fields: dict[str, str]
    """By name in lower case, the last of each."""
    body: bytes
    chunks: tuple[bytes, ...] = ()
    head: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert self.fields["content-type"] == "application/json"
        return dict(error)


class NotWhole(Exception):
    """An answer that ends before its end; the text is what came of it."""

    def __init__(self, how: str, got: bytes) -> None:
        super().__init__(how, got)
        self.how = how
        self.got = got


@define(eq=False)
class RawClient:
    """Bytes to a gateway, and what it says."""

    stream: trio.SocketStream
    buffer: bytearray = field(factory=bytearray)
    ended: str = ""
    """`closed` or `reset`."""

    async def send(self, data: bytes) -> None:
        with trio.fail_after(DEADLINE_S):
            await self.stream.send_all(data)

    async def send_slowly(self, data: bytes) -> None:
        """Each byte alone."""
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in range(len(data)):
            await self.send(data[each : each + 1])
            await trio.lowlevel.checkpoint()

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer()

    async def answer(self, *, head_only: bool = False) -> Answer:
        """The next answer; raises `NotWhole`."""
        head = await self._until(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            raise NotWhole("no answer", head)
        line, fields = split_head(head[:-4])
        named = {name.lower(): value for name, value in fields}
        status = int(line.split(" ")[1])
        chunks: tuple[bytes, ...] = ()
        if head_only or status in (204, 304) or status < 200:
            body = b""
        elif "chunked" in named.get("transfer-encoding", ""):
            chunks = tuple([each async for each in self._chunks()])
            body = b"".join(chunks)
        elif "content-length" in named:
            body = await self._take(int(named["content-length"]))
        else:
            body = await self.rest()
            if self.ended == "reset":
                raise NotWhole("reset", body)
        return Answer(status, named, body, chunks, head)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            size = int((await self._until(b"\r\n")).split(b";")[0], 16)
            if not size:
                while await self._until(b"\r\n") != b"\r\n":
                    pass
                return
            data = await self._take(size + 2)
            assert data.endswith(b"\r\n")
            yield data[:-2]

    async def event(self) -> bytes:
        """One chunk of the answer."""
        size = int(await self._until(b"\r\n"), 16)
        return (await self._take(size + 2))[:-2]

    async def head(self) -> bytes:
        return await self._until(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """All until the gateway ends the connection; how, says `ended`."""
        while await self._more():
            pass
        return bytes(self.buffer)

    async def _until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            if not await self._more():
                raise NotWhole(self.ended, bytes(self.buffer))
        return await self._take(self.buffer.index(end) + len(end))

    async def _take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not await self._more():
                raise NotWhole(self.ended, bytes(self.buffer))
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    async def _more(self) -> bool:
        if self.ended:
            return False
        with trio.fail_after(DEADLINE_S):
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                self.ended = "reset"
                return False
        if not data:
            self.ended = "closed"
            return False
        self.buffer += data
        return True

    async def leave(self) -> None:
        await self.stream.aclose()

    def reset(self) -> None:
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.stream.socket.close()


# The gateway.


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

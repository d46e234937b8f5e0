"""Engines that do what a test has written down, on real sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from struct import pack
from typing import Any

import trio
from attrs import define, field, frozen

from llmgw_core.model.route import Target
from llmgw_core.testing.http_words import split_head

DEADLINE_S = 60.0
"""A wait that is not over by then fails."""


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

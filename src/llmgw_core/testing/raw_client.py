"""A client that says any bytes to a gateway, and takes its answers apart."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from struct import pack
from typing import Any

import trio
from attrs import define, field, frozen

from llmgw_core.testing.http_words import split_head
from llmgw_core.testing.scripted_engine import DEADLINE_S


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

"""Messages over WebSocket over TLS: one link between two processes.

Rules: a message is at most `MESSAGE_LIMIT_BYTES` long, and a longer one ends the link with that reason; a link that
ends raises `LinkClosed` with the reason in both directions; nothing here knows what a message means.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import trio
from attrs import define
from trio_websocket import (
    CloseReason,
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    wrap_client_stream,
    wrap_server_stream,
)

from llmgw_core.errors import LlmgwError
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, ROUTES_LIMIT_BYTES, Message, Refused, Routes, Unknown
from llmgw_core.wire.text import decode, encode

PATH = "/llmgw"
UPGRADE_S = 10.0
"""How long the peer may take from the TLS handshake to the WebSocket upgrade."""
CLOSE_S = 2.0
"""How long a close waits for the peer's."""
_GONE, _TOO_BIG = 1006, 1009  # RFC 6455, 7.4.1
_REASON_CHARACTERS = 2000


class LinkClosed(LlmgwError):
    """The link has ended; the text says why, as far as this side knows."""


class TooLarge(LinkClosed):
    """The peer said more than a message may have."""


class TooLong(LinkClosed):
    """A message of ours that would be over the limit: nothing of it was sent, and the link is as it was."""


@define
class Link:
    """One end of a link."""

    _socket: WebSocketConnection
    _limit_bytes: int = MESSAGE_LIMIT_BYTES
    """Of one message that is heard."""

    @property
    def closed(self) -> CloseReason | None:
        """How it was closed; None: it is open."""
        return self._socket.closed

    async def say(self, message: Message) -> None:
        """Send; raises `LinkClosed`, or `TooLong` and nothing has happened."""
        await self.say_text(type(message).__name__, encode(message))

    async def say_text(self, kind: str, text: str) -> None:
        """The same, of a message that has been encoded already: one text may go to many peers."""
        limit = ROUTES_LIMIT_BYTES if kind == Routes.__name__ else MESSAGE_LIMIT_BYTES
        if len(text) > limit:
            raise TooLong(f"message too large: {kind} of {len(text)} bytes, over {limit}")
        try:
            await self._socket.send_message(text)
        except ConnectionClosed as closed:
            raise _ended(closed, self._limit_bytes) from closed

    async def hear(self) -> Message | Unknown:
        """The next message; raises `LinkClosed`, or `Garbage` when what came is none."""
        try:
            return decode(await self._socket.get_message())
        except ConnectionClosed as closed:
            raise _ended(closed, self._limit_bytes) from closed

    async def refuse(self, reason: str) -> None:
        """Say why, and close; never raises for a peer that is gone."""
        with trio.move_on_after(CLOSE_S, shield=True), suppress(LinkClosed):
            await self.say(Refused(reason[:_REASON_CHARACTERS]))
            await self.close(reason)

    async def close(self, reason: str = "") -> None:
        """Close with a reason; waits a little for the peer, never for long."""
        with trio.move_on_after(CLOSE_S, shield=True):
            await self._socket.aclose(code=1000, reason=reason[:100])


def _ended(closed: ConnectionClosed, limit_bytes: int) -> LinkClosed:
    why = closed.reason
    if why is None or why.code == _GONE:
        return LinkClosed("the connection is gone")
    if why.code == _TOO_BIG:
        return TooLarge(f"message too large: more than {limit_bytes} bytes")
    return LinkClosed(why.reason or f"closed with code {int(why.code)}")


@asynccontextmanager
async def accept_link(stream: trio.abc.Stream) -> AsyncIterator[Link]:
    """The server's end over an established stream; raises `LinkClosed` where no WebSocket comes about."""

    async def upgrade(nursery: trio.Nursery) -> WebSocketConnection:
        request = await wrap_server_stream(nursery, stream, max_message_size=MESSAGE_LIMIT_BYTES)
        return await request.accept()

    link: Link | None = None
    try:
        async with _linked(upgrade) as link:
            yield link
    finally:
        if link is not None and link.closed is not None and link.closed.code == _TOO_BIG:
            await _hear_out(stream)


async def _hear_out(stream: trio.abc.Stream) -> None:
    """Take the rest of what is too long: a peer that is still sending reads no reason, and a reset would destroy it."""
    with trio.move_on_after(CLOSE_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stream.receive_some():
            pass


@asynccontextmanager
async def open_link(stream: trio.abc.Stream, host: str, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> AsyncIterator[Link]:
    """The client's end over an established stream; raises `LinkClosed` where no WebSocket comes about.

    `limit_bytes`: of one message that is heard here.
    """

    async def upgrade(nursery: trio.Nursery) -> WebSocketConnection:
        # Any stream will do; the annotation names two kinds.
        given = cast("trio.SocketStream", stream)
        return await wrap_client_stream(nursery, given, host, PATH, max_message_size=limit_bytes)

    async with _linked(upgrade, limit_bytes) as link:
        yield link


@define
class _Reading:
    """Stands in for the nursery that a WebSocket starts its reader in: a reader that ends, ends the waiting too."""

    nursery: trio.Nursery
    waiting: trio.CancelScope
    ended: str = ""

    def start_soon(self, reader: Callable[[], Awaitable[None]]) -> None:
        self.nursery.start_soon(self._read, reader)

    async def _read(self, reader: Callable[[], Awaitable[None]]) -> None:
        try:
            await reader()
            self.ended = "the connection is gone"
        except HandshakeError as error:
            self.ended = _said(error)
        except Exception as error:
            # What h11 and wsproto make of a peer that speaks something else: no reason to end the process.
            self.ended = f"the peer does not speak WebSocket ({type(error).__name__})"
        self.waiting.cancel()


@asynccontextmanager
async def _linked(
    upgrade: Callable[[trio.Nursery], Awaitable[WebSocketConnection]], limit_bytes: int = MESSAGE_LIMIT_BYTES
) -> AsyncIterator[Link]:
    """A link whose reader lives as long as the block. The block's own error leaves as itself, not as a group."""
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield Link(await _upgraded(upgrade, nursery), limit_bytes)
        except Exception as error:
            failed = error
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _upgraded(
    upgrade: Callable[[trio.Nursery], Awaitable[WebSocketConnection]], nursery: trio.Nursery
) -> WebSocketConnection:
    with trio.move_on_after(UPGRADE_S) as waiting:
        reading: Any = _Reading(nursery, waiting)
        try:
            return await upgrade(reading)
        except (HandshakeError, ConnectionClosed) as error:
            raise LinkClosed(f"no WebSocket came about: {_said(error)}") from error
    raise LinkClosed(f"no WebSocket came about: {reading.ended or f'nothing within {UPGRADE_S:g} s'}")


def _said(error: BaseException) -> str:
    if isinstance(error, ConnectionRejected):
        return f"rejected with HTTP status {error.status_code}"
    return str(error) or type(error).__name__

"""Messages over WebSocket over TLS: one link between two processes.

Rules: a message is at most `MESSAGE_LIMIT_BYTES` long, and a longer one ends the link with that reason; a link that
ends raises `LinkClosed` with the reason in both directions; nothing here knows what a message means.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import trio
from attrs import define
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    wrap_client_stream,
    wrap_server_stream,
)

from llmgw_core.errors import LlmgwError
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, Message, Refused, Unknown
from llmgw_core.wire.text import decode, encode

PATH = "/llmgw"
UPGRADE_S = 10.0
"""How long the peer may take from the TLS handshake to the WebSocket upgrade."""
CLOSE_S = 2.0
"""How long a close waits for the peer's."""
_TOO_BIG = 1009


class LinkClosed(LlmgwError):
    """The link has ended; the text says why, as far as this side knows."""


@define
class Link:
    """One end of a link."""

    _socket: WebSocketConnection

    async def say(self, message: Message) -> None:
        """Send; raises `LinkClosed`."""
        text = encode(message)
        if len(text) > MESSAGE_LIMIT_BYTES:
            raise LinkClosed(f"a {type(message).__name__} of {len(text)} bytes is over {MESSAGE_LIMIT_BYTES}")
        try:
            await self._socket.send_message(text)
        except ConnectionClosed as closed:
            raise LinkClosed(_why(closed)) from closed

    async def hear(self) -> Message | Unknown:
        """The next message; raises `LinkClosed`, or `Garbage` when what came is none."""
        try:
            return decode(await self._socket.get_message())
        except ConnectionClosed as closed:
            raise LinkClosed(_why(closed)) from closed

    async def refuse(self, reason: str) -> None:
        """Say why, and close; never raises for a peer that is gone."""
        with trio.move_on_after(CLOSE_S, shield=True), suppress(LinkClosed):
            await self.say(Refused(reason))
            await self.close(reason)

    async def close(self, reason: str = "") -> None:
        """Close with a reason; waits a little for the peer, never for long."""
        with trio.move_on_after(CLOSE_S, shield=True):
            await self._socket.aclose(code=1000, reason=reason[:100])


def _why(closed: ConnectionClosed) -> str:
    why = closed.reason
    if why is None:
        return "the connection is gone"
    if why.code == _TOO_BIG:
        return f"message too large: more than {MESSAGE_LIMIT_BYTES} bytes"
    return why.reason or f"closed with code {why.code}"


@asynccontextmanager
async def accept_link(stream: trio.abc.Stream) -> AsyncIterator[Link]:
    """The server's end over an established stream; raises `LinkClosed` where no WebSocket comes about."""

    async def upgrade(nursery: trio.Nursery) -> WebSocketConnection:
        request = await wrap_server_stream(nursery, stream, max_message_size=MESSAGE_LIMIT_BYTES)
        return await request.accept()

    async with _linked(upgrade) as link:
        yield link


@asynccontextmanager
async def open_link(stream: trio.abc.Stream, host: str) -> AsyncIterator[Link]:
    """The client's end over an established stream; raises `LinkClosed` where no WebSocket comes about."""

    async def upgrade(nursery: trio.Nursery) -> WebSocketConnection:
        # Any stream will do; the annotation names two kinds.
        given = cast("trio.SocketStream", stream)
        return await wrap_client_stream(nursery, given, host, PATH, max_message_size=MESSAGE_LIMIT_BYTES)

    async with _linked(upgrade) as link:
        yield link


@asynccontextmanager
async def _linked(upgrade: Callable[[trio.Nursery], Awaitable[WebSocketConnection]]) -> AsyncIterator[Link]:
    """A link whose reader lives as long as the block. The block's own error leaves as itself, not as a group."""
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            with trio.fail_after(UPGRADE_S):
                socket = await upgrade(nursery)
            yield Link(socket)
        except (trio.TooSlowError, HandshakeError, ConnectionClosed) as error:
            failed = LinkClosed(f"no WebSocket came about: {_said(error)}")
        except Exception as error:
            failed = error
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


def _said(error: BaseException) -> str:
    if isinstance(error, ConnectionRejected):
        return f"rejected with HTTP status {error.status_code}"
    return str(error) or type(error).__name__

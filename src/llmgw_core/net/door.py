"""From an accepted TCP connection to a TLS stream, for callers that are in no hurry or mean no good.

Rules: a caller has `HANDSHAKE_S` from its connection to the end of the handshake; at most `STEPS_AT_ONCE` handshakes
compute at the same time, and one that waits for its caller holds none of these places: idle and slow callers keep
nobody out. Who has begun has places of its own, so that in a storm callers get in one after the other, and not all at
once and too late. Inside, `TURNS_AT_ONCE` links are heard in one turn of the loop, `CHUNK_BYTES` of each, so that none
waits for all others. Plain HTTP is answered in HTTP, and a failed handshake with TLS's alert. What does not get in
raises `TurnedAway` with the reason.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import trio
from attrs import field, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.net.tls import explain_tls_error

HANDSHAKE_S = 10.0
STEPS_AT_ONCE = 8
TURNS_AT_ONCE = 16
CHUNK_BYTES = 4096
"""OpenSSL's side keeps room for the largest chunk that ever came, for each link."""
PART_S = 1.0
"""How long a caller that was answered may take to hear it: a socket closed before that would destroy the answer."""
_TLS_HANDSHAKE = 0x16  # RFC 8446, 5.1: the first byte of a record that carries a handshake
_PLAIN_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS with client certificates: use https, or the llmgw command.\n"
)


class TurnedAway(LlmgwError):
    """A caller that did not get as far as a link; the text is the reason."""


@frozen
class Room:
    """How much is done at once, over all callers."""

    places: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(STEPS_AT_ONCE))
    """For the first step of a handshake."""
    later: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(STEPS_AT_ONCE))
    """For its other steps."""
    turns: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(TURNS_AT_ONCE))
    """For what comes over a link: held for one turn of the loop."""


class _Stepwise(trio.abc.Stream):
    """A stream whose reader gives its place up while it waits, and takes one again when there is something to read."""

    def __init__(self, inner: trio.SocketStream, room: Room) -> None:
        self._inner = inner
        self._room = room
        self._place: trio.CapacityLimiter | None = room.places
        self._heard = False

    def open_wide(self) -> None:
        """The handshake is over: no more places."""
        self._place = None

    async def take_place(self) -> None:
        if self._place is not None:
            await self._place.acquire_on_behalf_of(self)

    def leave_place(self) -> None:
        if self._place is not None:
            self._place.release_on_behalf_of(self)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._place is None:
            return await self._receive_in_turn(min(max_bytes or CHUNK_BYTES, CHUNK_BYTES))
        self.leave_place()
        try:
            return await self._inner.receive_some(max_bytes)
        finally:
            self._place = self._room.later if self._heard else self._room.places
            self._heard = True
            with trio.CancelScope(shield=True):
                await self.take_place()

    async def _receive_in_turn(self, max_bytes: int) -> bytes | bytearray:
        # The reader is cancelled only when its link is over: what is lost then, nobody wants.
        try:
            return await self._inner.receive_some(max_bytes)
        finally:
            async with self._room.turns:
                pass  # to take a place is a turn of the loop

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def shake_hands(
    caller: trio.SocketStream, context: ssl.SSLContext, room: Room
) -> trio.SSLStream[trio.abc.Stream]:
    """A TLS stream whose peer has shown a certificate of our authority; raises `TurnedAway`."""
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        with trio.fail_after(HANDSHAKE_S):
            await _refuse_what_is_no_tls(caller)
            return await _encrypt(caller, context, room)
    except trio.TooSlowError:
        raise TurnedAway(f"handshake too slow: not finished within {HANDSHAKE_S:g} s") from None
    except (trio.BrokenResourceError, OSError) as error:
        raise TurnedAway(explain_tls_error(error)) from error


async def _refuse_what_is_no_tls(caller: trio.SocketStream) -> None:
    first = await caller.socket.recv(1, socket.MSG_PEEK)
    if not first:
        raise TurnedAway("the peer closed the connection without a word")
    if first[0] == _TLS_HANDSHAKE:
        return
    if first.isalpha():
        await _part_with(caller, _PLAIN_ANSWER)
        raise TurnedAway("plain HTTP on the TLS port")
    raise TurnedAway(f"no TLS: it began with byte 0x{first[0]:02x}")


async def _part_with(caller: trio.abc.HalfCloseableStream, words: bytes) -> None:
    """Say the last words, and hear the caller out for a moment."""
    with trio.move_on_after(PART_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await caller.send_all(words)
        await caller.send_eof()
        while await caller.receive_some():
            pass


async def _encrypt(caller: trio.SocketStream, context: ssl.SSLContext, room: Room) -> trio.SSLStream[trio.abc.Stream]:
    steps = _Stepwise(caller, room)
    # After the link's own goodbye nobody waits for TLS's: `https_compatible` leaves it out.
    encrypted = trio.SSLStream[trio.abc.Stream](steps, context, server_side=True, https_compatible=True)
    try:
        await _shake(encrypted, steps)
    except trio.BrokenResourceError:
        # trio leaves OpenSSL's alert unsent, and the caller would never hear why (SSLStream._retry, trio 0.35).
        await _part_with(caller, encrypted._outgoing.read())
        raise
    steps.open_wide()
    _untie(encrypted)
    return encrypted


def _untie(encrypted: trio.SSLStream[trio.abc.Stream]) -> None:
    """trio's stream holds on to itself by the handshake that it has done (SSLStream._handshook, trio 0.35): without
    this, each link that ends leaves 30 kB of OpenSSL's to the next full garbage collection."""
    with suppress(AttributeError):
        setattr(encrypted._handshook, "_afn", None)  # noqa: B010 - it is called once, and has been


async def _shake(encrypted: trio.SSLStream[trio.abc.Stream], steps: _Stepwise) -> None:
    await steps.take_place()
    try:
        await encrypted.do_handshake()
    finally:
        steps.leave_place()

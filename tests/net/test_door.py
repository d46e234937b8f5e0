"""The way in over real sockets: who is slow, idle or no TLS at all keeps nobody out, and is told."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from llmgw_core.model.identity import Role
from llmgw_core.net import door
from llmgw_core.net.door import Room, TurnedAway, shake_hands
from llmgw_core.net.tls import client_context, explain_tls_error, server_context
from llmgw_core.testing.made_fleet import DEADLINE_S, MadeAuthority, until


@define
class Door:
    """A door on a port, with one place, and what became of its callers."""

    port: int
    authority: MadeAuthority
    places: trio.CapacityLimiter
    turned_away: list[str] = field(factory=list)
    let_in: int = 0

    async def call(self) -> trio.SocketStream:
        with trio.fail_after(DEADLINE_S):
            return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def come_in(self, context: ssl.SSLContext | None = None) -> bytes:
        """What is said to a caller with a good certificate."""
        context = context or client_context(self.authority.issue(Role.NODE, "gpu1"))
        with trio.fail_after(DEADLINE_S):
            plain = await self.call()
            stream = trio.SSLStream(plain, context, server_hostname="127.0.0.1", https_compatible=True)
            try:
                return bytes(await stream.receive_some())
            finally:
                await trio.aclose_forcefully(stream)


@pytest.fixture(name="door")
async def _door(tmp_path: Path) -> AsyncIterator[Door]:
    async with opened(tmp_path) as opened_door:
        yield opened_door


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Door]:
    authority = MadeAuthority.create(directory)
    context = server_context(authority.issue(Role.SERVER, "control"))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    found = Door(listener.socket.getsockname()[1], authority, trio.CapacityLimiter(1))

    async def handle(caller: trio.SocketStream) -> None:
        try:
            stream = await shake_hands(caller, context, Room(found.places))
        except TurnedAway as error:
            found.turned_away.append(str(error))
        else:
            found.let_in += 1
            await stream.send_all(b"welcome")
        finally:
            await trio.aclose_forcefully(caller)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        yield found
        nursery.cancel_scope.cancel()


async def heard(stream: trio.SocketStream) -> bytes:
    """All that comes until the far end closes."""
    found = b""
    with trio.fail_after(DEADLINE_S):
        try:
            async for part in stream:
                found += part
        except trio.BrokenResourceError:
            pass  # a reset closes too
    await stream.aclose()
    return found


async def test_who_has_a_certificate_comes_in(door: Door) -> None:
    assert await door.come_in() == b"welcome"
    assert (door.let_in, door.turned_away) == (1, [])


async def test_idle_and_stalled_callers_hold_no_place(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """One place, and two hundred callers that will never finish."""
    monkeypatch.setattr("llmgw_core.net.door.HANDSHAKE_S", 10 * DEADLINE_S)  # else they are too slow, some day
    callers = [await door.call() for _ in range(200)]
    for stalled in callers[100:]:
        await stalled.send_all(b"\x16\x03\x01\x02\x00\x01")
    assert await door.come_in() == b"welcome"
    assert door.places.borrowed_tokens == 0
    for caller in callers:
        await trio.aclose_forcefully(caller)
    await until(lambda: len(door.turned_away) == 200)
    assert set(door.turned_away) == {"the peer closed the connection without a word"}


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "a byte", "a record"])
async def test_a_slow_handshake_ends(door: Door, first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw_core.net.door.HANDSHAKE_S", 0.1)
    caller = await door.call()
    await caller.send_all(first or b"")
    assert await heard(caller) == b""
    await until(lambda: door.turned_away)
    assert door.turned_away == ["handshake too slow: not finished within 0.1 s"]
    assert door.places.borrowed_tokens == 0


@pytest.mark.parametrize("word", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /", b"CONNECT x:443 HTTP/1.1\r\n"])
async def test_plain_http_is_answered_in_http(door: Door, word: bytes) -> None:
    caller = await door.call()
    await caller.send_all(word)
    answer = await heard(caller)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"use https, or the llmgw command.\n")
    await until(lambda: door.turned_away)
    assert door.turned_away == ["plain HTTP on the TLS port"]


async def test_an_answered_caller_that_stays_is_not_waited_for(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw_core.net.door.PART_S", 0.1)
    caller = await door.call()
    await caller.send_all(b"GET / HTTP/1.1\r\n")
    await until(lambda: door.turned_away)
    assert door.turned_away == ["plain HTTP on the TLS port"]
    await trio.aclose_forcefully(caller)


@pytest.mark.parametrize("word", [b"\x00", b"\xff\xff\xff", b"\x80\x2e\x01", b"\n", b"123"])
async def test_bytes_that_are_no_tls_are_turned_away(door: Door, word: bytes) -> None:
    caller = await door.call()
    await caller.send_all(word)
    assert await heard(caller) == b""
    await until(lambda: door.turned_away)
    assert door.turned_away == [f"no TLS: it began with byte 0x{word[0]:02x}"]


async def test_a_record_of_garbage_is_turned_away_with_an_alert(door: Door) -> None:
    caller = await door.call()
    await caller.send_all(b"\x16\x03\x01\x00\x04abcd")
    assert (await heard(caller))[:1] == b"\x15"
    (said,) = await until(lambda: door.turned_away)
    assert said.startswith("TLS failed: ")


async def test_a_caller_that_leaves_in_the_middle_is_told_apart(door: Door) -> None:
    caller = await door.call()
    await caller.aclose()
    await until(lambda: door.turned_away)
    assert door.turned_away == ["the peer closed the connection without a word"]


async def test_a_refused_certificate_is_told_by_an_alert(door: Door, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = MadeAuthority.create(tmp_path / "other").make(Role.NODE, "gpu1", trusts=door.authority)
    with pytest.raises(trio.BrokenResourceError) as caught:
        await door.come_in(client_context(stranger))
    assert "does not trust the authority" in explain_tls_error(caught.value)
    await until(lambda: door.turned_away)
    assert "another authority than ours" in door.turned_away[0]
    assert await door.come_in() == b"welcome"


def test_a_handshake_has_less_time_than_an_agent_waits() -> None:
    from llmgw_core.net.calling import WELCOME_S

    assert door.HANDSHAKE_S <= WELCOME_S

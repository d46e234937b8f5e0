"""Messages over WebSocket: both directions, and every way in which a link ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair, open_stream_to_socket_listener

from llmgw_core.net.link import Link, LinkClosed, TooLarge, TooLong, accept_link, open_link
from llmgw_core.testing.made_fleet import DEADLINE_S, Peer
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, Answer, Heartbeat, Message, Refused
from llmgw_core.wire.text import Garbage, encode


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, Link]]:
    """A server's end and a client's end, over real sockets."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        done = trio.Event()
        send, receive = trio.open_memory_channel[Link](1)

        async def accept() -> None:
            async with await listener.accept() as stream, accept_link(stream) as link:
                await send.send(link)
                await done.wait()

        nursery.start_soon(accept)
        with trio.fail_after(DEADLINE_S):
            stream = await open_stream_to_socket_listener(listener)
            async with listener, stream, open_link(stream, "127.0.0.1") as client:
                yield await receive.receive(), client
                done.set()


async def hear(link: Link) -> object:
    return await Peer(link).hear()


@pytest.mark.parametrize("client_first", [True, False])
async def test_what_is_said_is_heard_in_order(client_first: bool) -> None:
    async with linked() as ends:
        one, other = reversed(ends) if client_first else ends
        for number in range(5):
            await one.say(Heartbeat(number))
            assert await hear(other) == Heartbeat(number)


def answer_of(size: int) -> Message:
    """A message whose text is so long."""
    return Answer(1, "x" * (size - len(encode(Answer(1, "")))))


@pytest.mark.parametrize("client_first", [True, False])
async def test_a_message_of_the_limit_arrives_and_one_over_it_is_not_sent(client_first: bool) -> None:
    async with linked() as ends:
        one, other = reversed(ends) if client_first else ends
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.say, answer_of(MESSAGE_LIMIT_BYTES))
            assert await hear(other) == answer_of(MESSAGE_LIMIT_BYTES)
        with pytest.raises(TooLong, match=f"Answer of {MESSAGE_LIMIT_BYTES + 1} bytes"):
            await one.say(answer_of(MESSAGE_LIMIT_BYTES + 1))
        await one.say(Heartbeat(1))
        assert await hear(other) == Heartbeat(1)


@pytest.mark.parametrize("client_first", [True, False])
async def test_a_message_over_the_limit_ends_the_link_for_both_with_that_reason(client_first: bool) -> None:
    reason = f"^message too large: more than {MESSAGE_LIMIT_BYTES} bytes$"
    async with linked() as ends:
        one, other = reversed(ends) if client_first else ends
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one._socket.send_message, "x" * (MESSAGE_LIMIT_BYTES + 1))
            with pytest.raises(TooLarge, match=reason):
                await hear(other)
            with pytest.raises(TooLarge, match=reason):
                await hear(one)


@pytest.mark.parametrize("client_first", [True, False])
async def test_a_refusal_says_why_and_closes(client_first: bool) -> None:
    async with linked() as ends:
        one, other = reversed(ends) if client_first else ends
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.refuse, "no")
            assert await hear(other) == Refused("no")
            with pytest.raises(LinkClosed, match=r"^no$"):
                await hear(other)
            with pytest.raises(LinkClosed, match=r"^no$"):
                await other.say(Heartbeat(1))
        with pytest.raises(LinkClosed):
            await hear(one)
        await one.refuse("again")  # does nothing
        await other.refuse("too late")


@pytest.mark.parametrize("reason", ["x" * 500, "é" * 200, "😀" * 100, "x" * (MESSAGE_LIMIT_BYTES + 1), "a\nb\0c", ""])
async def test_any_reason_can_be_given(reason: str) -> None:
    async with linked() as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(server.refuse, reason)
        heard = await hear(client)
        assert isinstance(heard, Refused)
        assert len(heard.reason) == min(len(reason), 2000)
        assert reason.startswith(heard.reason)
        with pytest.raises(LinkClosed):
            await hear(client)


async def test_a_peer_that_is_gone_without_a_word() -> None:
    async with linked() as (server, client):
        await trio.aclose_forcefully(server._socket._stream)
        with pytest.raises(LinkClosed, match=r"^the connection is gone$"):
            await hear(client)
        with pytest.raises(LinkClosed):
            await client.say(Heartbeat(1))


async def test_garbage_leaves_the_link_as_it_is() -> None:
    async with linked() as (server, client):
        await client._socket.send_message("garbage")
        await client._socket.send_message(b"\x00")
        await client.say(Heartbeat(1))
        for _ in range(2):
            with pytest.raises(Garbage):
                await hear(server)
        assert await hear(server) == Heartbeat(1)


async def test_a_peer_that_does_not_say_goodbye_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw_core.net.link.CLOSE_S", 0.1)
    near, far = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        async with open_over(near, far, nursery) as (link, silenced):
            silenced.cancel()
            with trio.fail_after(DEADLINE_S):
                await link.refuse("no")
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_over(
    near: trio.abc.Stream, far: trio.abc.Stream, nursery: trio.Nursery
) -> AsyncIterator[tuple[Link, trio.CancelScope]]:
    """A server's end, and the scope of a client that stops reading when it is cancelled."""
    scope = trio.CancelScope()

    async def be_client() -> None:
        with scope:
            async with open_link(far, "x"):
                await trio.sleep_forever()

    nursery.start_soon(be_client)
    async with accept_link(near) as link:
        yield link, scope


async def test_the_blocks_own_error_and_cancellation_leave_as_themselves() -> None:
    near, far = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        with pytest.raises(ZeroDivisionError), trio.fail_after(DEADLINE_S):
            async with open_over(near, far, nursery):
                raise ZeroDivisionError
        nursery.cancel_scope.cancel()
    near, far = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(DEADLINE_S) as scope:
            async with open_over(near, far, nursery):
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_a_timeout_of_the_block_is_no_missing_websocket() -> None:
    near, far = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        with pytest.raises(trio.TooSlowError):
            await time_out(near, far, nursery)
        nursery.cancel_scope.cancel()


async def time_out(near: trio.abc.Stream, far: trio.abc.Stream, nursery: trio.Nursery) -> None:
    async with open_over(near, far, nursery):
        with trio.fail_after(0):
            await trio.sleep_forever()

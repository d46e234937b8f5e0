"""Streams: forwarded at once and byte for byte, and broken off so that nobody takes them for whole."""

import socket

import pytest
import trio

from llmgw_core.gateway.flow import Flow
from llmgw_core.testing.gateway_rig import a_gateway
from llmgw_core.testing.http_words import LAST_CHUNK, NO_MORE, answer, chunk, event, post, stream_head, wish
from llmgw_core.testing.raw_client import NotWhole
from llmgw_core.testing.scripted_engine import Act

EITHER_POLLER = pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
HTTP_1_0 = post(version="1.0")
TEXT = "naïve 日本語 🤖".encode()


def kernel_waits_for_more(flow: Flow) -> bool:
    assert flow.connection is not None
    return not flow.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@EITHER_POLLER
async def test_each_event_is_forwarded_before_the_next_one_is_there(portable: bool) -> None:  # G01
    asked_for = [trio.Event() for _ in range(5)]
    script = [stream_head(), *(step for each, ask in enumerate(asked_for) for step in (ask, event(each, 247)))]
    async with a_gateway(portable=portable) as rig:
        await rig.route(await rig.engine([*script, LAST_CHUNK]))
        client = await rig.client()
        await client.send(post())
        head = await client.head()
        for each, ask in enumerate(asked_for):
            ask.set()
            # The gateway's clock stands still: what waited for a time of its own would wait for ever.
            assert b'"n":%d' % each in await client.event()
        assert [kernel_waits_for_more(each) for each in rig.worker.flows] == [False, False]
    assert b"x-accel-buffering: no\r\n" in head
    assert b"cache-control: no-cache\r\n" in head


async def test_what_the_engine_says_of_buffering_and_caching_stays() -> None:  # G01
    async with a_gateway() as rig:
        script = [stream_head("X-Accel-Buffering: yes", "Cache-Control: no-store"), LAST_CHUNK]
        await rig.route(await rig.engine(script))
        found = await rig.ask()
    assert found.head.lower().count(b"x-accel-buffering") == found.head.lower().count(b"cache-control") == 1
    assert found.fields["x-accel-buffering"] == "yes"
    assert found.fields["cache-control"] == "no-store"


async def test_an_answer_that_is_no_stream_says_nothing_of_buffering() -> None:
    async with a_gateway() as rig:
        await rig.route(await rig.engine([answer()]))
        assert "x-accel-buffering" not in (await rig.ask()).fields


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_bytes_of_a_stream_pass_as_they_came_wherever_they_are_split(size: int) -> None:  # G16
    whole = stream_head() + chunk(b"da") + chunk(b'ta: {"x":1}\r') + chunk(b"\n\r\nda") + chunk(TEXT) + LAST_CHUNK
    pieces = [whole[each : each + size] for each in range(0, len(whole), size)]
    async with a_gateway() as rig:
        await rig.route(await rig.engine(pieces))
        found = await rig.ask()
    assert found.chunks == (b"da", b'ta: {"x":1}\r', b"\n\r\nda", TEXT, b"data: [DONE]\n\n")


async def test_a_body_passes_byte_for_byte() -> None:  # G11
    body = b'{"a": "\\u00e9",\n "b":1}'
    async with a_gateway() as rig:
        await rig.route(await rig.engine([answer(body)]))
        found = await rig.ask()
    assert found.body == body
    assert found.fields["content-length"] == str(len(body))


async def test_an_error_of_the_engine_passes_as_it_is_though_a_stream_was_asked_for() -> None:  # G09
    body = b'{"object":"error","message":"bad effort","type":"BadRequestError","param":null,"code":400}'
    async with a_gateway() as rig:
        engine = await rig.engine([answer(body, "400 Bad Request")])
        await rig.route(engine)
        found = await rig.ask(post(wish(stream=True, reasoning_effort="xhigh")))
    assert (found.status, found.body, found.fields["content-length"]) == (400, body, str(len(body)))
    assert len(engine.requests) == 1


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable", "500 Oops", "404 Not Found"])
async def test_what_an_engine_answers_is_no_fault_of_its_connection(status: str) -> None:
    async with a_gateway() as rig:
        engine, other = await rig.engine([answer(status=status)]), await rig.engine([answer()])
        await rig.route(engine, other)
        statuses = [(await rig.ask()).status for _ in range(4)]
    assert sorted(statuses) == sorted([200, 200, *[int(status[:3])] * 2])


@EITHER_POLLER
@pytest.mark.parametrize("end", [Act.CLOSE, Act.RESET], ids=["close", "reset"])
async def test_a_stream_that_breaks_is_told_and_never_ends_as_if_whole(portable: bool, end: Act) -> None:  # G19 G25
    async with a_gateway(portable=portable) as rig:
        other = await rig.engine([answer()])
        sent = trio.Event()
        engine = await rig.engine([stream_head(), *map(event, range(40)), sent, end])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await client.head()
        events = [await client.event() for _ in range(40)]
        await rig.route(engine, other)
        sent.set()
        assert b'"code":"stream_broken"' in await client.event()
        assert await client.rest() == b""
        assert client.ended == "closed"
        assert len(events) == 40
        assert not other.requests
        assert rig.counts()['llmgw_gateway_errors_total{cause="lost_in_answer",model="m",replica="m/1"}'] == 1


async def test_a_stream_that_breaks_within_an_event_gets_no_event_of_ours() -> None:  # G19
    async with a_gateway() as rig:
        await rig.route(await rig.engine([stream_head(), event(1), chunk(b"data: {"), Act.CLOSE]))
        with pytest.raises(NotWhole) as broken:
            await rig.ask()
    assert b"stream_broken" not in broken.value.got


async def test_a_stream_that_breaks_within_a_chunk_gets_no_event_of_ours() -> None:  # G19
    async with a_gateway() as rig:
        await rig.route(await rig.engine([stream_head(), event(1), b"40\r\ndata: ok\n\n", Act.CLOSE]))
        with pytest.raises(NotWhole) as broken:
            await rig.ask()
    assert b"stream_broken" not in broken.value.got


@pytest.mark.parametrize("request_", [post(), HTTP_1_0], ids=["1.1", "1.0"])
@pytest.mark.parametrize("end", [Act.CLOSE, Act.RESET], ids=["close", "reset"])
@pytest.mark.parametrize(
    "begin",
    [stream_head() + event(1), answer(b"x" * 100)[:-50], b"HTTP/1.1 200 OK\r\n\r\nsome"],
    ids=["chunks", "length", "until-closed"],
)
async def test_a_broken_answer_is_visibly_broken(begin: bytes, end: Act, request_: bytes) -> None:  # G19
    ends_well = begin.endswith(b"some") and end is Act.CLOSE
    go_on = trio.Event()
    async with a_gateway() as rig:
        await rig.route(await rig.engine([begin, go_on, end]))
        client = await rig.client()
        await client.send(request_)
        head = await client.head()
        client.buffer[:0] = head
        go_on.set()
        if ends_well:
            assert (await client.answer()).body == b"some"
        else:
            with pytest.raises(NotWhole):
                await client.answer()


async def test_a_stalled_stream_is_broken_off_as_a_lost_one() -> None:  # G20
    async with a_gateway(stall_s=30) as rig:
        engine = await rig.engine([stream_head(), *map(event, range(5)), Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await client.head()
        for _ in range(5):
            await client.event()
        rig.pass_time(31)
        assert b"went silent" in await client.event()
        assert await client.rest() == b""
        await engine.until(lambda: engine.left)
        assert rig.counts()['llmgw_gateway_errors_total{cause="stalled",model="m",replica="m/1"}'] == 1


async def test_nothing_is_tried_again_once_a_byte_was_sent_on() -> None:  # G21
    async with a_gateway() as rig:
        go_on = trio.Event()
        first = await rig.engine([stream_head(), event(1), event(2), event(3), go_on, Act.RESET])
        second = await rig.engine([stream_head(), event(1), LAST_CHUNK])
        await rig.route(first)
        client = await rig.client()
        await client.send(post())
        await client.head()
        events = [await client.event() for _ in range(3)]
        await rig.route(first, second)
        go_on.set()
        assert b"stream_broken" in await client.event()
        assert await client.rest() == b""
    assert not second.requests
    assert len(set(events)) == 3


async def test_a_silent_engine_is_given_up_after_the_time_for_answers_not_for_connections() -> None:
    async with a_gateway(connect_s=3, answer_s=100) as rig:
        engine, other = await rig.engine([Act.SILENCE]), await rig.engine([answer()])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await engine.until(lambda: engine.requests)
        await rig.route(engine, other)
        rig.pass_time(99)
        assert rig.in_flight() == 1
        rig.pass_time(2)
        found = await client.answer()
        await engine.until(lambda: engine.left)
    assert (found.status, found.error["type"], found.error["code"]) == (504, "server_error", "answer_timeout")
    assert not other.requests


@EITHER_POLLER
async def test_clients_of_http_1_0_get_no_chunks_and_an_end(portable: bool) -> None:
    async with a_gateway(portable=portable) as rig:
        await rig.route(await rig.engine([stream_head(), chunk(TEXT), event(1), NO_MORE]))
        client = await rig.client()
        found = await client.ask(HTTP_1_0)
    assert found.body == TEXT + b'data: {"n":1,"x":""}\n\n'
    assert "transfer-encoding" not in found.fields
    assert client.ended == "closed"


async def test_an_answer_that_ends_with_its_connection_comes_in_chunks_and_the_client_goes_on() -> None:
    async with a_gateway() as rig:
        await rig.route(await rig.engine([b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nab", b"cd", Act.CLOSE]))
        client = await rig.client()
        found = [(await client.ask(post())).body for _ in range(2)]
    assert found == [b"abcd", b"abcd"]

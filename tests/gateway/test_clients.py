"""Connections of users: in order, slow, large, half there, never ending; and what they are told."""

import gc
from collections import Counter

import pytest
import trio

from llmgw_core.gateway.client import LINGER_S, LONGEST_LINGER_S, STUCK_S
from llmgw_core.gateway.flow import FULL_BYTES, PIECE_BYTES
from llmgw_core.testing.gateway_rig import Rig, a_gateway, user_key
from llmgw_core.testing.http_words import LAST_CHUNK, answer, event, get, post, stream_head, wish
from llmgw_core.testing.scripted_engine import Act

EITHER_POLLER = pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
GOOD = answer()
MIB = 2**20
KEY = "authorization: Bearer secret"


def large(size: int) -> bytes:
    body = wish(text="x" * (size - len(wish(text=""))))
    assert len(body) == size
    return body


def in_chunks(body: bytes, *fields: str) -> bytes:
    pieces = [body[each : each + 65536] for each in range(0, len(body), 65536)]
    head = post(b"", "transfer-encoding: chunked", *fields).replace(b"content-length: 0\r\n", b"")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


# Pipelining.


@EITHER_POLLER
async def test_two_requests_in_one_segment_are_answered_in_order_and_then_it_is_closed(portable: bool) -> None:  # G30
    async with a_gateway(portable=portable) as rig:
        await rig.route()
        client = await rig.client()
        await client.send(get() + get("/v1/models/m", "connection: close"))
        first, second = await client.answer(), await client.answer()
        assert (first.json["object"], second.json["object"]) == ("list", "model")
        assert "connection" not in first.fields
        assert second.fields["connection"] == "close"
        assert await client.rest() == b""
        assert client.ended == "closed"


async def test_what_follows_the_last_request_is_not_answered() -> None:  # G30
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post(None, "connection: close") + post() * 1000)
        assert (await client.answer()).status == 200
        assert await client.rest() == b""
        assert client.ended == "closed"
        assert len(engine.requests) == 1


async def test_twenty_requests_at_once() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine(*[[answer(b"%d" % each)] for each in range(20)])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post() * 20)
        assert [int((await client.answer()).body) for _ in range(20)] == list(range(20))


async def test_requests_to_engines_and_to_the_gateway_keep_their_order() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, stream_head(), event(1), LAST_CHUNK], [GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post() + get() + post() + get("/health") + post(wish("nope")))
        await engine.until(lambda: engine.requests)
        go_on.set()
        found = [await client.answer() for _ in range(5)]
        assert [each.status for each in found] == [200, 200, 200, 200, 404]
        assert [each.chunks != () for each in found] == [True, False, False, False, False]


async def test_what_came_before_a_malformed_request_is_answered() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post() + b"GARBAGE\r\n\r\n" + post())
        await engine.until(lambda: engine.requests)
        go_on.set()
        assert (await client.answer()).status == 200
        found = await client.answer()
        assert (found.status, found.fields["connection"]) == (400, "close")
        assert await client.rest() == b""
        assert len(engine.requests) == 1


async def test_a_smuggled_request_reaches_nobody() -> None:  # G27
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head + b"0\r\n\r\n" + b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n")
        found = await client.answer()
        assert (found.status, found.error["code"]) == (400, "malformed_request")
        assert await client.rest() == b""
        assert engine.connections == 0


async def test_a_client_that_pipelines_and_reads_nothing_is_not_read_for_ever() -> None:
    async with a_gateway() as rig:
        await rig.route()
        client = await rig.client(small=True)
        sent = 0
        with trio.move_on_after(1) as patience:
            while sent < 64 * MIB:
                await client.stream.send_all(get() * 1000)
                sent += len(get()) * 1000
                patience.deadline = trio.current_time() + 0.3
        assert sent < 30 * MIB, "all was taken"
        held = sum(each.kept_bytes for each in rig.worker.flows)
        assert held < FULL_BYTES + 2 * PIECE_BYTES


# Slowly.


@EITHER_POLLER
async def test_byte_by_byte_both_ways(portable: bool) -> None:
    whole = stream_head() + event(1) + event(2) + LAST_CHUNK
    async with a_gateway(portable=portable) as rig:
        engine = await rig.engine([whole[each : each + 1] for each in range(len(whole))])
        await rig.route(engine)
        client = await rig.client()
        text = wish(text="日本語 🤖")
        for request in (post(text), in_chunks(text)):
            await client.send_slowly(request)
            assert len((await client.answer()).chunks) == 3
        assert [each.body for each in engine.requests] == [text, text]


async def test_a_head_that_never_ends_is_refused_in_time_and_nobody_else_suffers() -> None:  # G31
    begin = b"POST /v1/chat/completions HTTP/1.1\r\nX: "
    async with a_gateway(head_s=30) as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        slow = [await rig.client() for _ in range(500)]
        for each in slow:
            await each.send(begin)
        await rig.until(lambda: _taken(rig) == 500 * len(begin))
        for _ in range(5):
            rig.pass_time(5)
            for each in slow:
                await each.send(b"a")
            assert (await rig.ask()).status == 200
        rig.pass_time(6)
        for each in slow[:5]:
            found = await each.answer()
            assert (found.status, found.error["code"]) == (408, "request_timeout")
        rig.pass_time(LINGER_S + 1)
        for each in slow:
            await each.rest()
            assert each.ended
        assert (await rig.ask()).status == 200
        assert rig.counts()['llmgw_gateway_own_answers_total{status="408"}'] == 500


async def test_the_time_of_a_request_begins_with_its_first_byte() -> None:
    async with a_gateway(head_s=30, idle_s=75) as rig:
        await rig.route(await rig.engine([GOOD]))
        client = await rig.client()
        for _ in range(3):
            await client.ask(post())
            rig.pass_time(70)
            await client.send(post()[:30])
            await rig.until(lambda: _reads_a_request(rig))
            rig.pass_time(20)
            await client.send(post()[30:])
            assert (await client.answer()).status == 200


def _reads_a_request(rig: Rig) -> bool:
    readers = [each._reader for each in rig.worker.flows if hasattr(each, "_reader")]
    return any(each.current is not None for each in readers)


async def test_a_large_body_may_take_longer() -> None:
    async with a_gateway(head_s=30) as rig:
        await rig.route(await rig.engine([GOOD]))
        client = await rig.client()
        request = post(large(4 * MIB))
        await client.send(request[: 3 * MIB])
        await rig.until(lambda: _taken(rig) == 3 * MIB)
        rig.pass_time(200)  # of 30 + 192
        await client.send(request[3 * MIB :])
        assert (await client.answer()).status == 200


def _taken(rig: Rig) -> int:
    return sum(each._taken_bytes for each in rig.worker.flows if hasattr(each, "_taken_bytes"))


async def test_an_idle_connection_is_closed_in_time() -> None:
    async with a_gateway(idle_s=75) as rig:
        await rig.route(await rig.engine([GOOD]))
        client, other = await rig.client(), await rig.client()
        for each in (client, other):
            await each.ask(post())
        rig.pass_time(74)
        await other.ask(post())
        rig.pass_time(2)
        assert await client.rest() == b""
        assert client.ended == "closed"
        assert (await other.ask(post())).status == 200


async def test_a_client_that_says_nothing_is_closed_without_a_word() -> None:
    async with a_gateway(head_s=30) as rig:
        client = await rig.client()
        await rig.until(lambda: rig.worker.flows)
        rig.pass_time(31)
        assert await client.rest() == b""


async def test_a_client_that_reads_slowly_gets_it_all_and_little_is_kept_meanwhile() -> None:  # G31
    count = 300
    async with a_gateway(idle_s=75) as rig:
        engine = await rig.engine([stream_head(), *[event(each, 60_000) for each in range(count)], LAST_CHUNK])
        await rig.route(engine)
        client = await rig.client(small=True)
        await client.send(post(None, "connection: close"))
        await rig.until(lambda: any(each.is_full for each in rig.worker.flows))
        assert sum(each.kept_bytes for each in rig.worker.flows) <= FULL_BYTES + PIECE_BYTES
        await client.head()
        for each in range(count):
            assert b'"n":%d,' % each in await client.event()
            assert sum(each.kept_bytes for each in rig.worker.flows) <= FULL_BYTES + PIECE_BYTES
            if each % 4 == 3:  # 240 kB
                rig.pass_time(50)
        assert await client.rest() == LAST_CHUNK
        assert client.ended == "closed"


async def test_a_client_that_takes_nothing_any_more_is_left() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([stream_head(), *[event(each, 60_000) for each in range(300)], Act.SILENCE])
        await rig.route(engine)
        client = await rig.client(small=True)
        await client.send(post())
        await rig.until(lambda: any(each.is_full for each in rig.worker.flows))
        rig.pass_time(STUCK_S - 1)
        assert rig.in_flight() == 1
        rig.pass_time(2)
        assert rig.in_flight() == 0
        await engine.until(lambda: engine.left)


async def test_the_rest_of_a_last_answer_is_sent_however_long_it_takes() -> None:
    size = 4 * MIB
    async with a_gateway(idle_s=75) as rig:
        await rig.route(await rig.engine([answer(b"x" * size)]))
        client = await rig.client(small=True)
        await client.send(post(version="1.0"))
        head = await client.head()
        for _ in range(16):
            assert len(await client._take(size // 16)) == size // 16
            rig.pass_time(50)
        assert b"content-length: %d" % size in head
        assert await client.rest() == b""


async def test_an_idle_connection_is_two_objects_and_nothing_of_its_requests_stays() -> None:
    many = 100
    async with a_gateway() as rig:
        await rig.route(await rig.engine([GOOD]))
        await (await rig.client()).ask(post())
        before, flows = objects_of_the_gateway(), len(rig.worker.flows)
        clients = [await rig.client() for _ in range(many)]
        await rig.until(lambda: len(rig.worker.flows) == flows + many)
        idle = objects_of_the_gateway()
        assert idle - before == {"Client": many, "RequestReader": many}
        for each in clients:
            assert (await each.ask(post())).status == 200
        await rig.until(lambda: objects_of_the_gateway() == idle, "as it was before they asked")
        assert not any(each.kept_bytes for each in rig.worker.flows)


def objects_of_the_gateway() -> Counter[str]:
    """By their class, how many there are."""
    gc.collect()
    classes = [type(each) for each in gc.get_objects()]
    return Counter(each.__name__ for each in classes if str(each.__module__).startswith("llmgw_core.gateway."))


# Large.


@EITHER_POLLER
async def test_a_body_of_32_mib_passes(portable: bool) -> None:
    body = large(32 * MIB)
    async with a_gateway(portable=portable) as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        assert (await rig.ask(post(body))).status == 200
        assert engine.requests[0].body == body


async def test_a_body_of_32_mib_in_chunks_passes() -> None:
    body = large(32 * MIB)
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        assert (await rig.ask(in_chunks(body))).status == 200
        assert engine.requests[0].body == body


@pytest.mark.parametrize("fields", [[], ["expect: 100-continue"]], ids=["", "expect"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_byte_more_is_refused_and_that_is_heard(chunked: bool, fields: list[str]) -> None:
    body = large(32 * MIB + 1)
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(in_chunks(body, *fields) if chunked else post(body, *fields))
        found = await client.answer()
        if chunked and fields:
            assert found.status == 100
            found = await client.answer()
        assert (found.status, found.error["code"], found.fields["connection"]) == (413, "request_too_large", "close")
        assert engine.connections == 0


async def test_a_refusal_is_heard_by_who_sends_for_long() -> None:
    async with a_gateway(authenticates=True) as rig:
        await rig.route()
        client = await rig.client()
        request = post(large(8 * MIB))
        for each in range(8):
            await client.send(request[each * MIB : (each + 1) * MIB])
            await rig.until(lambda: _lingers_on(rig))
            rig.pass_time(LINGER_S - 0.5)
        assert (await client.answer()).status == 401
        assert LONGEST_LINGER_S > 8 * LINGER_S


def _lingers_on(rig: Rig) -> bool:
    """Whether the gateway has just read something that it passes over."""
    return any(abs(each.deadline - rig.clock() - LINGER_S) < 0.1 for each in rig.worker.flows)


# Expect.


@EITHER_POLLER
async def test_whoever_waits_for_100_continue_gets_it_before_any_of_the_body_is_there(portable: bool) -> None:  # G26
    body = large(2_000_000)
    async with a_gateway(portable=portable) as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        request = post(body, "Expect: 100-continue")
        for _ in range(3):
            await client.send(request[: -len(body)])
            assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(body)
            assert (await client.answer()).status == 200
        assert engine.requests[0].body == body
        assert engine.requests[0].values("expect") == []


async def test_a_request_that_waits_behind_another_gets_its_100_continue_after_it() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, GOOD], [GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post() + post(wish(), "expect: 100-continue")[: -len(wish())])
        await engine.until(lambda: engine.requests)
        go_on.set()
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 100
        assert (await client.ask(wish())).status == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (["content-length: 99999999999"], 413),
        (["content-length: 100", "authorization: Bearer wrong"], 401),
        (["content-length: 100", "x-a: b\x01"], 400),
    ],
)
async def test_what_the_head_decides_is_said_without_100_continue(fields: list[str], status: int) -> None:  # G33
    async with a_gateway(authenticates=True) as rig:
        await rig.route(keys=[user_key("secret")])
        client = await rig.client()
        key = [] if status == 401 else [KEY]
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", "expect: 100-continue", *key, *fields, "", ""]
        await client.send("\r\n".join(lines).encode("latin-1"))
        found = await client.answer()
        assert (found.status, found.fields["connection"]) == (status, "close")
        assert await client.rest() == b""


async def test_no_body_is_asked_for_where_there_is_none() -> None:
    async with a_gateway() as rig:
        await rig.route()
        assert (await rig.ask(post(b"", "expect: 100-continue"))).status == 400  # no JSON
        assert (await rig.ask(post(None, "expect: 100-continue", version="1.0"))).status == 503


# Offers, forms, methods, paths.


async def test_java_clients_that_offer_http_2_are_served_and_go_on() -> None:
    offer = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk"]
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        for _ in range(2):
            assert (await client.ask(post(None, *offer))).status == 200
            assert (await client.ask(in_chunks(wish(), *offer))).status == 200
            assert (await client.ask(get("/v1/models", *offer))).status == 200
        assert [each.body for each in engine.requests] == [wish()] * 4
        assert not {name.lower() for name, _ in engine.requests[0].fields} & {"upgrade", "http2-settings", "connection"}


@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
async def test_a_target_in_absolute_form_is_understood(scheme: str) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        for _ in range(2):
            found = await rig.ask(post(path=f"{scheme}://any.host:8080/v1/chat/completions?a=b"))
            assert found.status == 200
        assert engine.requests[0].line == "POST /v1/chat/completions?a=b HTTP/1.1"
        assert (await rig.ask(get(f"{scheme}://any.host/v1/models"))).status == 200
        assert (await rig.ask(get(f"{scheme}://any.host"))).status == 404


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/health", "/metrics", "/v1/models/nope", "/nope"])
async def test_head_is_as_get_without_the_body(path: str) -> None:
    async with a_gateway() as rig:
        await rig.route()
        client = await rig.client()
        await client.send(get(path, method="HEAD"))
        told = await client.answer(head_only=True)
        asked = await client.ask(get(path))
        assert told.status == asked.status
        if path != "/metrics":
            assert int(told.fields["content-length"]) == len(asked.body)


async def test_a_refusal_of_head_has_no_body() -> None:
    async with a_gateway() as rig:
        await rig.route()
        client = await rig.client()
        await client.send(get("/v1/chat/completions", method="HEAD"))
        assert (await client.answer(head_only=True)).status == 405
        assert (await client.ask(get())).status == 200
        await client.send(b"HEAD /v1/models HTTP/1.1\r\n\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/chat/completions", 405, "POST"),
        ("PUT", "/v1/chat/completions", 405, "POST"),
        ("DELETE", "/v1/responses/r1", 405, "POST"),
        ("OPTIONS", "/v1/chat/completions", 405, "POST"),
        ("POST", "/v1/models", 405, "GET, HEAD"),
        ("DELETE", "/v1/models/m", 405, "GET, HEAD"),
        ("POST", "/metrics", 405, "GET, HEAD"),
        ("OPTIONS", "*", 404, None),
        ("CONNECT", "host:443", 404, None),
        ("GET", "/", 404, None),
        ("GET", "/v1", 404, None),
        ("POST", "/v1", 404, None),
        ("POST", "/admin", 404, None),
        ("POST", "/v1/../admin", 404, None),
        ("POST", "/v1/a/../../admin", 404, None),
        ("POST", "/v1//admin", 404, None),
        ("POST", "//v1/chat/completions", 404, None),
        ("POST", "/v1/%2e%2e/admin", 404, None),
        ("POST", "/v1/..%2fadmin", 404, None),
        ("POST", "/V1/chat/completions", 404, None),
        ("POST", "/metrics/v1/", 404, None),
        ("POST", "ftp://host/v1/chat/completions", 404, None),
    ],
)
async def test_what_is_not_there(method: str, path: str, status: int, allow: str | None) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        request = post(path=path) if method == "POST" else get(path, method=method)
        found = await client.ask(request)
        assert (found.status, found.fields.get("allow")) == (status, allow)
        assert found.error["type"] == "invalid_request_error"
        assert (await client.ask(get())).status == 200
        assert engine.connections == 0


@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/embeddings", "/v1/audio/speech", "/v1/x?y=%20..//z", "/v1/a.b"]
)
async def test_every_post_under_v1_is_passed_on(path: str) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        assert (await rig.ask(post(path=path))).status == 200
        assert engine.requests[0].line == f"POST {path} HTTP/1.1"


async def test_a_stopping_gateway_answers_what_runs_and_takes_no_more() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engine = await rig.engine([GOOD], [stream_head(), event(1), go_on, event(2), LAST_CHUNK], [go_on, GOOD])
        await rig.route(engine)
        idle, streaming, waiting = [await rig.client() for _ in range(3)]
        await idle.ask(post())
        await streaming.send(post() + post())
        await streaming.head()
        await waiting.send(post())
        await engine.until(lambda: len(engine.requests) == 3)
        rig.worker.stop()
        assert await idle.rest() == b""
        assert rig.worker.is_busy
        go_on.set()
        assert (await waiting.answer()).fields["connection"] == "close"
        assert (await streaming.rest()).endswith(b"0\r\n\r\n")
        assert streaming.ended == "closed"
        await rig.until(lambda: not rig.worker.is_busy)


async def test_a_stopping_gateway_is_busy_until_its_answers_are_taken() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([answer(b"x" * 350_000)])
        await rig.route(engine)
        client = await rig.client(small=True)
        await client.send(post())
        await engine.until(lambda: engine.requests)
        await rig.until(lambda: not rig.in_flight())
        rig.worker.stop()
        assert rig.worker.is_busy
        assert len((await client.answer()).body) == 350_000
        await rig.until(lambda: not rig.worker.is_busy)


async def test_a_request_id_is_kept_or_made_and_told_to_both_sides() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        kept = await rig.ask(post(None, "X-Request-ID: req_1"))
        made = [await rig.ask(post(None, *said)) for said in ([], ["x-request-id: a b<"], [])]
        refused = await rig.ask(post(wish("nope"), "x-request-id: req_2"))
    ids = [each.fields["x-request-id"] for each in (kept, *made)]
    assert ids[0] == "req_1"
    assert len(set(ids)) == 4
    assert [each.values("x-request-id") for each in engine.requests] == [[each] for each in ids]
    assert refused.fields["x-request-id"] == "req_2"

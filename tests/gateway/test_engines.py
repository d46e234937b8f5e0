"""Connections to engines: kept, lost, tried again, and what an engine says that it should not."""

import errno
import socket
from collections.abc import Iterator

import pytest
import trio

from llmgw_core.gateway.exchange import Exchange
from llmgw_core.gateway.upstream import IDLE_S
from llmgw_core.model.route import Affinity, ModelRoute, Target
from llmgw_core.testing.gateway_rig import a_gateway
from llmgw_core.testing.http_words import LAST_CHUNK, NO_MORE, answer, chunk, event, post, stream_head, wish
from llmgw_core.testing.ports import free_port
from llmgw_core.testing.raw_client import NotWhole
from llmgw_core.testing.scripted_engine import Act, Step

EITHER_POLLER = pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
GOOD = answer()


@pytest.fixture
def blackhole() -> Iterator[Target]:
    """An address where connections are neither taken nor refused."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = []
    for _ in range(3):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(listener.getsockname())
        waiting.append(each)
    yield Target("m/1", 1, "127.0.0.1", listener.getsockname()[1])
    for each in [*waiting, listener]:
        each.close()


def _refusing() -> Target:
    return Target("m/9", 1, "127.0.0.1", free_port())


async def test_a_connection_is_used_again() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        for _ in range(3):
            await client.ask(post())
        assert [each.connection for each in engine.requests] == [1, 1, 1]


@EITHER_POLLER
async def test_an_engine_that_closes_idle_connections_fails_no_request(portable: bool) -> None:  # G06
    async with a_gateway(portable=portable) as rig:
        engine = await rig.engine([GOOD, Act.CLOSE])
        await rig.route(engine)
        client = await rig.client()
        assert [(await client.ask(post())).status for _ in range(50)] == [200] * 50


async def test_an_engine_that_closes_as_the_next_request_is_sent_fails_none() -> None:  # G06
    async with a_gateway() as rig:
        # Every second request meets a connection that dies of it, and is sent anew on a fresh one.
        by_turns: list[list[Step]] = [[Act.RESET], [GOOD]]
        engine = await rig.engine([GOOD], *by_turns * 50)
        await rig.route(engine)
        client = await rig.client()
        assert [(await client.ask(post())).status for _ in range(50)] == [200] * 50
        assert engine.connections == 50
        assert not [name for name in rig.counts() if "errors" in name]


async def test_idle_connections_go_before_engines_drop_them() -> None:  # G06
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        await client.ask(post())
        rig.pass_time(IDLE_S + 0.1)
        await engine.until(lambda: engine.left)
        assert (await client.ask(post())).status == 200
        assert IDLE_S < 5


async def test_an_engine_that_closes_every_connection_without_a_byte_gets_few_tries() -> None:  # G07 G25
    async with a_gateway() as rig:
        engine, other = await rig.engine([Act.CLOSE]), await rig.engine([Act.CLOSE])
        await rig.route(engine, other)
        found = await rig.ask()
        assert len(engine.requests) == len(other.requests) == 1
    assert (found.status, found.error["type"], found.error["code"]) == (502, "server_error", "lost_before_answer")
    assert "closed the connection before it answered" in found.error["message"]


@EITHER_POLLER
@pytest.mark.parametrize("fault", [Act.CLOSE, Act.RESET], ids=["close", "reset"])
async def test_what_is_lost_before_an_answer_is_tried_once_at_another_replica(portable: bool, fault: Act) -> None:
    async with a_gateway(portable=portable) as rig:
        bad = await rig.engine([fault])
        good = await rig.engine([stream_head(), event(1), LAST_CHUNK])
        await rig.route(bad, good)
        assert [(await rig.ask()).status for _ in range(4)] == [200] * 4
        assert len(bad.requests) == 1
        assert rig.counts()['llmgw_gateway_retries_total{model="m",replica="m/2"}'] == 1


async def test_a_half_sent_head_is_not_yet_an_answer() -> None:
    async with a_gateway() as rig:
        bad, good = await rig.engine([b"HTTP/1.1 200 OK\r\ncontent-le", Act.CLOSE]), await rig.engine([GOOD])
        await rig.route(bad, good)
        assert [(await rig.ask()).status for _ in range(2)] == [200] * 2


@EITHER_POLLER
async def test_a_replica_that_refuses_connections_is_out_at_once_and_comes_back_by_itself(portable: bool) -> None:
    async with a_gateway(portable=portable) as rig:
        good = await rig.engine([GOOD])
        gone = _refusing()
        rig.take(ModelRoute("m", targets=(gone, good.target)))
        assert [(await rig.ask()).status for _ in range(6)] == [200] * 6
        assert rig.counts()['llmgw_gateway_errors_total{cause="refused",model="m",replica="m/9"}'] == 1
        back = await rig.engine([GOOD], port=gone.port)
        rig.pass_time(1.5)
        for _ in range(4):
            await rig.ask()
        assert len(back.requests) == 2


async def test_a_replica_that_refuses_again_is_out_for_longer() -> None:
    async with a_gateway() as rig:
        good = await rig.engine([GOOD])
        rig.take(ModelRoute("m", targets=(_refusing(), good.target)))
        refused = 'llmgw_gateway_errors_total{cause="refused",model="m",replica="m/9"}'
        seen = []
        for _ in range(8):
            for _ in range(3):
                await rig.ask()
            seen.append(rig.counts()[refused])
            rig.pass_time(1.1)
        assert seen == [1, 2, 2, 3, 3, 3, 3, 4]  # after 1, 2 and 4 s


async def test_when_all_look_bad_they_are_tried_anyway() -> None:
    async with a_gateway() as rig:
        gone = _refusing()
        rig.take(ModelRoute("m", targets=(gone,)))
        found = await rig.ask()
        assert (found.status, found.error["code"]) == (502, "refused")
        assert not [name for name in rig.counts() if "retries" in name]
        await rig.engine([GOOD], port=gone.port)
        assert (await rig.ask()).status == 200


async def test_a_replica_that_takes_no_connection_is_left_in_seconds(blackhole: Target) -> None:
    async with a_gateway(connect_s=3, answer_s=3600) as rig:
        good = await rig.engine([GOOD], name="m/2")
        rig.take(ModelRoute("m", targets=(blackhole,)))
        client = await rig.client()
        await client.send(post())
        await rig.until(lambda: rig.in_flight() == 1)
        rig.take(ModelRoute("m", targets=(blackhole, good.target)))
        rig.pass_time(3.1)
        assert (await client.answer()).status == 200
        assert (await client.ask(post())).status == 200
        assert len(good.requests) == 2


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux names these options so")
async def test_the_kernel_is_told_to_notice_machines_that_go_without_a_word() -> None:
    async with a_gateway(silent_s=12.0) as rig:
        engine = await rig.engine([Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post(wish()))
        await rig.until(lambda: len(engine.requests) == 1, "the request at the engine")
        told = {
            type(flow).__name__: tuple(
                flow.connection.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            )
            for flow in rig.worker.flows
            if flow.connection is not None and flow.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        }
        assert told == {"Client": (6, 2, 3, 0), "Upstream": (6, 2, 3, 12_000)}


async def test_nobody_takes_a_connection_in_time(blackhole: Target) -> None:  # G25
    async with a_gateway() as rig:
        rig.take(ModelRoute("m", targets=(blackhole,)))
        client = await rig.client()
        await client.send(post())
        await rig.until(lambda: rig.in_flight() == 1)
        rig.pass_time(3.1)
        found = await client.answer()
    assert (found.status, found.error["code"], found.error["type"]) == (504, "connect_timeout", "server_error")


EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_what_an_engine_says_before_its_answer_is_passed_over(size: int) -> None:
    whole = EARLY + GOOD
    async with a_gateway() as rig:
        engine = await rig.engine([whole[each : each + size] for each in range(0, len(whole), size)])
        await rig.route(engine)
        client = await rig.client()
        for _ in range(2):
            found = await client.ask(post())
            assert (found.status, found.body) == (200, b'{"ok":1}')
            assert "link" not in found.fields
        assert engine.connections == 1


HEAD = b"HTTP/1.1 200 OK\r\n"
NONSENSE = {
    "garbage": b"garbage\r\n\r\n",
    "other protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nabc",
    "length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "no number": HEAD + b"content-length: two\r\n\r\n",
    "coding nobody asked for": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding without chunks": HEAD + b"transfer-encoding: gzip\r\n\r\nabc",
    "chunks twice": HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\ncontent-length: 2\n\nab",
    "bare CR": HEAD + b"x: a\rb\r\ncontent-length: 0\r\n\r\n",
    "NUL": HEAD + b"x: \0\r\ncontent-length: 0\r\n\r\n",
    "folded": HEAD + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "bytes after the end": HEAD + b"content-length: 2\r\n\r\nabX",
    "an answer after the end": GOOD + GOOD,
    "a body where none is": b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nab",
    "empty line before": b"\r\n\r\n" + GOOD,
    "empty line after 1xx": EARLY + b"\r\n" + GOOD,
    "status 999": b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 X\r\ncontent-length: 0\r\n\r\n",
    "status 000": b"HTTP/1.1 000 X\r\ncontent-length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "70 KB head": HEAD + b"x: " + b"y" * 70_000 + b"\r\ncontent-length: 0\r\n\r\n",
    "endless head": HEAD + (b"x: " + b"y" * 1000 + b"\r\n") * 2000,
}


@pytest.mark.parametrize("said", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_is_a_502_and_the_connection_is_used_no_more(said: bytes) -> None:  # G25
    async with a_gateway() as rig:
        other = await rig.engine([GOOD])
        engine = await rig.engine([said, Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        found = await client.answer()
        assert (found.status, found.error["type"], found.error["code"]) == (502, "server_error", "nonsense")
        await engine.until(lambda: engine.left)
        await rig.route(other)
        assert (await client.ask(post())).status == 200


@pytest.mark.parametrize(
    "said",
    [
        stream_head() + event(1) + b"zz\r\n",
        stream_head() + event(1) + b"2\r\nabX\r\n",
        stream_head() + event(1) + b"2\nab",
        stream_head() + event(1) + b"ffffffffffffffffff\r\n",
    ],
)
async def test_nonsense_within_an_answer_breaks_it_off(said: bytes) -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        end = said.index(event(1)) + len(event(1))
        engine = await rig.engine([said[:end], go_on, said[end:], Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await client.head()
        await client.event()
        go_on.set()
        assert NO_MORE not in await client.rest()
        await engine.until(lambda: engine.left)
        assert rig.counts()['llmgw_gateway_errors_total{cause="nonsense",model="m",replica="m/1"}'] == 1


@pytest.mark.parametrize("line", [b"\r\n", b"\n", b"\r", b"\r\n\r\n"])
@pytest.mark.parametrize("whole", [GOOD, stream_head() + event(1) + LAST_CHUNK], ids=["length", "chunks"])
async def test_an_empty_line_after_an_answer_harms_nobody(whole: bytes, line: bytes) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([whole + line, Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        found = await client.answer()
        assert found.body == b'{"ok":1}' or found.chunks[-1] == b"data: [DONE]\n\n"
        assert await client.rest() == line
        await engine.until(lambda: engine.left)  # nor is that connection used again


@pytest.mark.parametrize("tail", [b"x\r\n", b"x\r\n\r\n", b"\r\n\r\n\r\n", b"0\r\n\r\n"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_an_answer_may_end_in_empty_lines(tail: bytes, chunked: bool) -> None:
    whole = stream_head() + chunk(tail) + NO_MORE if chunked else answer(tail)
    async with a_gateway() as rig:
        engine = await rig.engine([whole])
        await rig.route(engine)
        client = await rig.client()
        assert [(await client.ask(post())).body for _ in range(3)] == [tail] * 3
        assert engine.connections == 1


async def test_trailers_pass() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([stream_head(), event(1), b"0\r\nx-t: 1\r\n\r\n"])
        await rig.route(engine)
        client = await rig.client()
        for _ in range(2):
            await client.ask(post())
        assert engine.connections == 1


async def test_huge_chunk_extensions_pass() -> None:
    async with a_gateway() as rig:
        await rig.route(await rig.engine([stream_head(), b"2;" + b"e" * 200_000 + b"\r\nab\r\n", NO_MORE]))
        assert (await rig.ask()).body == b"ab"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("fields", ["", "content-length: 0\r\n"])
async def test_answers_without_a_body_end_with_their_head(status: str, fields: str) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([f"HTTP/1.1 {status}\r\n{fields}\r\n".encode()])
        await rig.route(engine)
        client = await rig.client()
        assert [(await client.ask(post())).status for _ in range(3)] == [int(status[:3])] * 3
        assert engine.connections == 1


async def test_a_length_without_its_body_is_lost() -> None:
    async with a_gateway() as rig:
        await rig.route(await rig.engine([HEAD + b"content-length: 10\r\n\r\n", Act.CLOSE]))
        client = await rig.client()
        await client.send(post())
        assert (await client.rest()).endswith(b"\r\n\r\n")
        assert rig.counts()['llmgw_gateway_errors_total{cause="lost_in_answer",model="m",replica="m/1"}'] == 1


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n", True),
        (b"HTTP/1.0 200 OK\r\n", False),
        (HEAD + b"connection: close\r\n", False),
        (HEAD, True),
    ],
)
async def test_a_connection_is_kept_as_the_engine_says(fields: bytes, kept: bool) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([fields + b"content-length: 2\r\n\r\nab"])
        await rig.route(engine)
        client = await rig.client()
        assert [(await client.ask(post())).body for _ in range(2)] == [b"ab"] * 2
        assert engine.connections == (1 if kept else 2)


BIG = wish(text="x" * 8_000_000)
TOO_LARGE = answer(b'{"error":{}}', "413 Content Too Large", "connection: close")


@EITHER_POLLER
@pytest.mark.parametrize("end", [[Act.CLOSE], [Act.SILENCE]], ids=["closes", "stays"])
async def test_an_engine_that_answers_before_it_has_read_all_is_heard(portable: bool, end: list[Act]) -> None:
    async with a_gateway(portable=portable) as rig:
        engine = await rig.engine([TOO_LARGE, *end], reads_bodies=False)
        await rig.route(engine)
        client = await rig.client()
        assert (await client.ask(post(BIG))).status == 413
        assert len(engine.requests) == 1


async def test_a_connection_on_which_a_request_is_not_whole_is_used_no_more() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([answer(status="413 Content Too Large")], reads_bodies=False)
        await rig.route(engine)
        client = await rig.client()
        for _ in range(2):
            assert (await client.ask(post(BIG))).status == 413
        assert [each.connection for each in engine.requests] == [1, 2]
        engine.may_read.set()


@pytest.mark.parametrize("body", [wish(), BIG], ids=["small", "8 MB"])
async def test_a_request_reaches_the_engine_byte_for_byte(body: bytes) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        client = await rig.client()
        for _ in range(2):
            await client.ask(post(body))
        assert [each.body for each in engine.requests] == [body, body]


async def test_a_table_that_leads_elsewhere_cuts_no_stream_and_leaves_no_idle_connection() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        old = await rig.engine([stream_head(), event(1), go_on, event(2), LAST_CHUNK], [GOOD])
        new = await rig.engine([GOOD])
        await rig.route(old)
        idle, streaming = await rig.client(), await rig.client()
        await streaming.send(post())
        await streaming.head()
        await streaming.event()
        await idle.ask(post())
        rig.take(ModelRoute("m", targets=(Target("m/1", 2, "127.0.0.1", new.port),)))
        await old.until(lambda: old.left == 1)
        assert rig.in_flight() == 1
        assert (await idle.ask(post())).status == 200
        assert len(new.requests) == 1
        go_on.set()
        assert b'"n":2' in await streaming.event()
        assert b"DONE" in await streaming.event()
        await old.until(lambda: old.left == old.connections)
        assert rig.in_flight() == 0


async def test_least_requests_in_flight() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engines = [await rig.engine([go_on, GOOD]) for _ in range(3)]
        await rig.route(*engines)
        clients = [await rig.client() for _ in range(9)]
        for client in clients:
            await client.send(post())
        await rig.until(lambda: [rig.in_flight(f"m/{each}") for each in (1, 2, 3)] == [3, 3, 3])
        go_on.set()
        for client in clients:
            assert (await client.answer()).status == 200


async def test_requests_of_a_session_meet_until_their_replica_is_loaded() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        go_on.set()
        engines = [await rig.engine([go_on, GOOD]) for _ in range(3)]
        await rig.route(*engines, affinity=Affinity.SESSION)
        for _ in range(6):
            await rig.ask(post(None, "x-session-id: s1"))
        assert sorted(len(each.requests) for each in engines) == [0, 0, 6]
        [liked] = [each for each in engines if each.requests]
        liked.scripts = [[trio.Event()]]
        clients = [await rig.client() for _ in range(9)]
        for client in clients:
            await client.send(post(None, "x-session-id: s1"))
        await rig.until(lambda: any(len(each.requests) for each in engines if each is not liked))
        assert len(liked.requests) < 6 + 9


async def test_requests_that_begin_alike_meet() -> None:
    async with a_gateway() as rig:
        engines = [await rig.engine([GOOD]) for _ in range(3)]
        await rig.route(*engines, affinity=Affinity.PREFIX)
        begin = "You are helpful. " * 100
        for each in range(6):
            await rig.ask(post(wish(messages=[{"role": "system", "content": begin}, {"content": str(each)}])))
        assert sorted(len(each.requests) for each in engines) == [0, 0, 6]
        for each in range(30):
            await rig.ask(post(wish(messages=[{"role": "user", "content": str(each)}])))
        assert all(engine.requests for engine in engines)


async def test_an_engines_key_is_told_to_it_and_a_users_key_to_nobody() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD], key="engine-secret")
        await rig.route(engine)
        secrets = ["authorization: Bearer user-secret", "x-api-key: user-secret", "proxy-authorization: user-secret"]
        await rig.ask(post(None, *secrets))
    assert engine.requests[0].values("authorization") == ["Bearer engine-secret"]
    assert "user-secret" not in str(engine.requests[0])


async def test_fields_of_a_connection_stay_on_it_and_all_others_pass() -> None:  # G13
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        hop = ["Connection: keep-alive, X-Foo", "X-Foo: 1", "TE: trailers", "Proxy-Connection: x", "Keep-Alive: 5"]
        ends = ["X-Twice: one", "x-twice: two", "OpenAI-Organization: Org", "Accept: */*", "X-Empty: "]
        await rig.ask(post(None, *hop, *ends, "Content-Type: application/json"))
    [received] = engine.requests
    names = {name.lower() for name, _ in received.fields}
    assert not names & {"connection", "x-foo", "te", "proxy-connection", "keep-alive", "transfer-encoding"}
    assert received.values("x-twice") == ["one", "two"]
    assert ("OpenAI-Organization", "Org") in received.fields
    assert received.values("content-type") == ["application/json"]
    assert received.values("host") == [f"127.0.0.1:{engine.port}"]
    assert received.values("x-empty") == [""]


async def test_what_a_connection_field_names_takes_nothing_away_that_matters() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([GOOD], key="k")
        await rig.route(engine)
        await rig.ask(post(None, "connection: content-length, content-type, host, authorization, x-request-id"))
    [received] = engine.requests
    assert received.body == wish()
    assert received.values("authorization") == ["Bearer k"]
    assert len(received.values("host")) == len(received.values("x-request-id")) == 1


async def test_the_engines_fields_pass_but_those_of_its_connection() -> None:
    async with a_gateway() as rig:
        fields = ["Server: uvicorn", "X-Twice: 1", "X-Twice: 2", "Connection: keep-alive", "Keep-Alive: timeout=5"]
        await rig.route(await rig.engine([answer(b"{}", "200 OK", *fields, "x-request-id: theirs")]))
        found = await rig.ask(post(None, "x-request-id: mine"))
    assert found.head.count(b"X-Twice") == 2
    assert found.fields["server"] == "uvicorn"
    assert "keep-alive" not in found.fields
    assert found.fields["x-request-id"] == "mine"


async def test_that_the_gateway_has_no_room_is_no_fault_of_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with a_gateway() as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        with monkeypatch.context() as patched:
            patched.setattr(Exchange, "_connect", connect)
            found = await rig.ask()
        assert (found.status, found.error["code"], found.fields["retry-after"]) == (503, "overloaded", "5")
        assert not [name for name in rig.counts() if "errors" in name]
        assert (await rig.ask()).status == 200


async def test_no_connection_can_be_made_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    async with a_gateway() as rig:
        await rig.route(*[await rig.engine([GOOD]) for _ in range(3)])
        monkeypatch.setattr(Exchange, "_connect", connect)
        assert [(await rig.ask()).error["code"] for _ in range(3)] == ["refused"] * 3


async def test_nothing_is_added_to_an_answer_that_was_broken_off() -> None:
    async with a_gateway() as rig:
        go_on = trio.Event()
        engine = await rig.engine([answer(b"x" * 3_000_000)[:-100], go_on, Act.RESET])
        await rig.route(engine)
        client = await rig.client(small=True)
        await client.send(post() + post(None, "expect: 100-continue")[: -len(wish())])
        await rig.until(lambda: any(each.is_full for each in rig.worker.flows))
        go_on.set()
        with pytest.raises(NotWhole) as broken:
            await client.answer()
        assert set(broken.value.got) == set(b"x")

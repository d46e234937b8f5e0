"""Engines, clients, tables and time at random: answers come in order, whole or broken, and the books balance."""

import json
import random
from contextlib import suppress

import pytest
import trio

from llmgw_core.model.route import Affinity, ModelRoute
from llmgw_core.testing.gateway_rig import Rig, a_gateway
from llmgw_core.testing.http_words import LAST_CHUNK, answer, chunk, event, get, post, stream_head, wish
from llmgw_core.testing.raw_client import NotWhole
from llmgw_core.testing.scripted_engine import DEADLINE_S, Act, Engine, Step

BODY = b"b" * 300_000
SCRIPTS: list[list[Step]] = [
    [answer()],
    [answer(BODY)],
    [answer(BODY, "200 OK", "connection: close"), Act.CLOSE],
    [answer(status="500 No")],
    [stream_head(), event(1), event(2), LAST_CHUNK],
    [stream_head(), *[event(each, 30_000) for each in range(20)], LAST_CHUNK],
    [b"HTTP/1.1 100 Continue\r\n\r\n", answer()],
    [b"HTTP/1.0 200 OK\r\n\r\nuntil closed", Act.CLOSE],
    [b"HTTP/1.1 204 No Content\r\n\r\n"],
    [answer(), Act.CLOSE],
    [Act.CLOSE],
    [Act.RESET],
    [Act.SILENCE],
    [b"HTTP/1.1 200 OK\r\ncont", Act.CLOSE],
    [b"nonsense\r\n\r\n"],
    [answer() + b"\r\n"],
    [answer() + answer()],
    [stream_head(), event(1), Act.CLOSE],
    [stream_head(), event(1), Act.RESET],
    [stream_head(), event(1), Act.SILENCE],
    [stream_head(), event(1), b"zz\r\n"],
    [answer(BODY)[:100_000], Act.RESET],
    [answer(BODY)[:100_000], Act.SILENCE],
]
WHOLE = {b'{"ok":1}', BODY, b"until closed", b""}


def _request(dice: random.Random, name: str) -> bytes:
    fields = [
        f"x-request-id: {name}",
        *dice.choice([[], [], ["x-session-id: s"], ["connection: upgrade", "upgrade: h2c"]]),
    ]
    body = wish(dice.choice(["m", "m", "alias", "nope"]), text="t" * dice.choice([10, 1000, 300_000]))
    kind = dice.randrange(6)
    if kind == 0:
        return get(dice.choice(["/v1/models", "/metrics", "/nope"]), *fields)
    if kind == 1:
        return post(b"", *fields, "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"") + (
            chunk(body) + b"0\r\n\r\n"
        )
    return post(body, *fields)


async def _client(rig: Rig, dice: random.Random, name: str) -> None:
    client = await rig.client(small=dice.random() < 0.2)
    names = [f"{name}.{each}" for each in range(dice.randrange(1, 6))]
    requests = b"".join(_request(dice, each) for each in names)
    leaves_after = dice.choice([None, None, None, 0, 1, 2])
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await client.stream.send_all(requests)

        nursery.start_soon(send)
        try:
            for at, each in enumerate(names):
                if leaves_after == at:
                    break
                found = await client.answer()
                assert found.fields["x-request-id"] == each
                assert (
                    found.status != 200
                    or found.chunks
                    or found.body in WHOLE
                    or b"object" in found.body
                    or (found.body.startswith(b"# HELP"))
                )
        except NotWhole:
            pass
        nursery.cancel_scope.cancel()
    if dice.random() < 0.5:
        client.reset()
    await client.leave()


async def _upset(rig: Rig, dice: random.Random, engines: list[Engine]) -> None:
    while True:
        await trio.sleep(0.01)
        chosen = [each for each in engines if dice.random() < 0.7]
        rig.take(
            ModelRoute(
                "m",
                aliases=("alias",),
                affinity=dice.choice(list(Affinity)),
                targets=tuple(each.target for each in chosen),
            )
        )
        rig.pass_time(dice.choice([0.1, 1.0, 4.0]))


@pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_the_books_balance(seed: int, portable: bool) -> None:  # G05
    dice = random.Random(seed)  # noqa: S311
    async with a_gateway(portable=portable, hold_s=2, stall_s=5, answer_s=5, connect_s=3) as rig:
        engines = [
            await rig.engine(*dice.choices(SCRIPTS, k=400), name=f"m/{each}", key="k" * (each % 2))
            for each in range(1, 5)
        ]
        rig.take(ModelRoute("m", aliases=("alias",), targets=tuple(each.target for each in engines)))
        with trio.fail_after(2 * DEADLINE_S):
            async with trio.open_nursery() as upset:
                upset.start_soon(_upset, rig, dice, engines)
                async with trio.open_nursery() as clients:
                    for each in range(60):
                        clients.start_soon(_client, rig, random.Random(seed * 1000 + each), f"c{each}")  # noqa: S311
                upset.cancel_scope.cancel()
        await rig.until(lambda: not any(each.exchange for each in rig.worker.clients()))
        assert not any(rig.board.in_flight(place) for place in rig.places.attempts.values())
        counts = rig.counts()
        at_replicas = sum(value for name, value in counts.items() if name.startswith("llmgw_gateway_requests_total"))
        timed = sum(value for name, value in counts.items() if name.startswith("llmgw_gateway_request_seconds_count"))
        assert at_replicas == timed > 20
        used = sum(value for name, value in counts.items() if name.startswith("llmgw_gateway_key_requests"))
        assert used >= at_replicas


SAID = [
    answer(b'{"ok":1}'),
    b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"x" * 40),
    stream_head() + event(1) + event(2) + LAST_CHUNK,
    stream_head("connection: close") + chunk(b"ab") + b"0\r\nx-t: 1\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nserver: x\r\n\r\nuntil closed",
    b"HTTP/1.1 204 No Content\r\n\r\n",
]
_ODD = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"0",
    b"9",
    b"f",
    b":",
    b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"0\r\n\r\n",
    b"\xff",
    b";",
    b"-",
]


def _spoil(said: bytes, dice: random.Random, odd: list[bytes] = _ODD) -> bytes:
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(said) + 1)
        until = dice.choice([at, at, at + 1, at + dice.randrange(20)])
        said = said[:at] + dice.choice(odd) + said[until:]
    return said


@pytest.mark.parametrize("seed", range(8))
async def test_a_spoilt_answer_is_an_answer_or_broken_and_harms_no_other(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    spoilt = [_spoil(dice.choice(SAID), dice) for _ in range(60)]
    left_over = []
    async with a_gateway() as rig:
        bad, good = await rig.engine([answer()]), await rig.engine([answer(b"good")])
        client = await rig.client()
        for said in spoilt:
            cut = dice.randrange(len(said) + 1)
            bad.scripts = [[said[:cut], said[cut:], Act.CLOSE]]
            await rig.route(bad)
            try:
                found = await client.ask(post())
            except NotWhole:
                client = await rig.client()
            else:
                assert 200 <= found.status < 600
                assert found.fields["x-request-id"]
            await rig.until(lambda: rig.in_flight() == 0)
            await rig.route(good)
            try:
                assert (await client.ask(post())).body == b"good"
            except trio.BrokenResourceError:
                client = await rig.client()
            except NotWhole as closed:
                left_over.append(closed.got)
                client = await rig.client()
    # An empty line after the end of an answer passes, and the connection is closed.
    assert not b"".join(left_over).strip(b"\r\n")


_CHUNKED = post(b"", "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
ASKED = [
    post(),
    _CHUNKED + chunk(wish()[:5]) + chunk(wish()[5:]) + b"0\r\n\r\n",
    get(),
    post(wish(), "expect: 100-continue"),
    post() + get() + post(),
]
_ODD_FIELDS = [
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"),
    *(b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"Host: y\r\n", b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"),
]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_asked_engines_get_whole_requests_only(seed: int) -> None:  # G27
    dice = random.Random(seed)  # noqa: S311
    async with a_gateway(portable=seed % 2 == 0) as rig:
        engine = await rig.engine([answer()])
        await rig.route(engine)
        for _ in range(60):
            said = _spoil(dice.choice(ASKED), dice, [*_ODD, *_ODD_FIELDS])
            client = await rig.client()
            with suppress(trio.BrokenResourceError):
                cut = dice.randrange(len(said) + 1)
                await client.send(said[:cut])
                await client.send(said[cut:])
                await client.stream.send_eof()
            with suppress(NotWhole):
                while True:
                    await client.answer()
            assert client.ended
            assert not client.buffer
        for received in engine.requests:
            assert received.line.startswith("POST /")
            assert len(received.values("content-length")) == len(received.values("host")) == 1
            assert not received.values("transfer-encoding")
            assert json.loads(received.body)["model"] == "m"

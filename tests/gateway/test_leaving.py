"""A client that leaves is worked for no longer, whatever is being done for it; and nothing stays counted."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from llmgw_core.model.route import ModelRoute, Target
from llmgw_core.testing.gateway_rig import Rig, a_gateway, user_key
from llmgw_core.testing.http_words import LAST_CHUNK, answer, event, post, stream_head, wish
from llmgw_core.testing.raw_client import RawClient
from llmgw_core.testing.scripted_engine import Act, Engine, Step

GOOD = answer()
BIG = wish(text="x" * 8_000_000)
Leave = Callable[[RawClient], Awaitable[None]]


async def _close(client: RawClient) -> None:
    await client.leave()


async def _reset(client: RawClient) -> None:
    client.reset()


async def _half_close(client: RawClient) -> None:
    await client.stream.send_eof()


ANY_WAY = pytest.mark.parametrize("leave", [_close, _reset, _half_close], ids=["close", "reset", "half"])
PHASES: dict[str, list[Step]] = {
    "nothing has come": [Act.SILENCE],
    "1xx has come": [b"HTTP/1.1 100 Continue\r\n\r\n", Act.SILENCE],
    "half a head": [b"HTTP/1.1 200 OK\r\ncontent-", Act.SILENCE],
    "head only": [stream_head(), Act.SILENCE],
    "streaming": [stream_head(), event(1), event(2), Act.SILENCE],
    "half a body": [answer(b"x" * 100)[:-50], Act.SILENCE],
}


async def _is_let_go(rig: Rig, engine: Engine) -> None:
    """At once: the gateway's clock stands still, and nobody sweeps."""
    await engine.until(lambda: engine.left == 1)
    assert rig.in_flight() == 0
    assert rig.counts()['llmgw_gateway_errors_total{cause="client_left",model="m",replica="m/1"}'] == 1


@ANY_WAY
@pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
@pytest.mark.parametrize("script", PHASES.values(), ids=PHASES)
async def test_the_engine_hears_at_once_that_its_client_has_left(
    script: list[Step], portable: bool, leave: Leave
) -> None:  # G03 G05
    async with a_gateway(portable=portable) as rig:
        engine = await rig.engine(script)
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await engine.until(lambda: engine.requests)
        if stream_head() in script:
            await client.head()
        await leave(client)
        await _is_let_go(rig, engine)


@ANY_WAY
async def test_so_it_is_while_another_request_waits_behind(leave: Leave) -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post() + post() + post())
        await engine.until(lambda: engine.requests)
        await leave(client)
        await _is_let_go(rig, engine)
        assert len(engine.requests) == 1


async def test_so_it_is_while_a_body_is_sent() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([Act.SILENCE], reads_bodies=False)
        await rig.route(engine)
        client = await rig.client()
        await client.send(post(BIG))
        await engine.until(lambda: engine.heads)
        await client.leave()
        await rig.until(lambda: rig.in_flight() == 0)
        engine.may_read.set()
        await _is_let_go(rig, engine)


async def test_so_it_is_while_a_connection_is_made() -> None:
    async with a_gateway() as rig:
        with trio.socket.socket() as full:
            await full.bind(("127.0.0.1", 0))
            full.listen(0)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(_knock, full.getsockname())
                await trio.testing.wait_all_tasks_blocked()
                rig.take(ModelRoute("m", targets=(Target("m/1", 1, "127.0.0.1", full.getsockname()[1]),)))
                client = await rig.client()
                await client.send(post())
                await rig.until(lambda: rig.in_flight() == 1)
                await client.leave()
                await rig.until(lambda: rig.in_flight() == 0)
                nursery.cancel_scope.cancel()


async def _knock(address: tuple[str, int]) -> None:
    with trio.socket.socket() as each:
        await each.connect(address)
        await trio.sleep_forever()


@ANY_WAY
async def test_so_it_is_while_a_request_waits_for_a_replica(leave: Leave) -> None:
    async with a_gateway(hold_s=30) as rig:
        await rig.route()
        client = await rig.client()
        await client.send(post())
        await rig.until(lambda: rig.worker.is_busy)
        await leave(client)
        await rig.until(lambda: not rig.worker.is_busy)
        engine = await rig.engine([GOOD])
        await rig.route(engine)
        assert (await rig.ask()).status == 200
        assert len(engine.requests) == 1
        assert rig.counts()['llmgw_gateway_own_answers_total{status="499"}'] == 1


async def test_so_it_is_while_its_client_reads_nothing() -> None:
    async with a_gateway() as rig:
        engine = await rig.engine([stream_head(), *[event(each, 60_000) for each in range(200)], LAST_CHUNK])
        await rig.route(engine)
        client = await rig.client(small=True)
        await client.send(post())
        await rig.until(lambda: any(each.is_full for each in rig.worker.flows))
        client.reset()
        await _is_let_go(rig, engine)


async def test_a_key_has_its_place_back_whatever_happened() -> None:  # G05
    """One request at a time: each would be refused if the one before were still counted."""
    ends: list[list[Step]] = [
        [answer()],
        [answer(status="500 Oops")],
        [Act.CLOSE],
        [stream_head(), event(1), Act.CLOSE],
        [b"nonsense\r\n\r\n"],
        [stream_head(), event(1), Act.RESET],
    ]
    async with a_gateway(authenticates=True) as rig:
        engine = await rig.engine(*ends)
        await rig.route(engine, keys=[user_key("secret", concurrent=1)])
        for _ in ends:
            client = await rig.client()
            await client.send(post(None, "authorization: Bearer secret", "connection: close"))
            assert b" 429 " not in await client.rest()
            assert rig.in_flight() == 0
        for _ in range(3):
            client = await rig.client()
            await client.send(post(None, "authorization: Bearer secret"))
            await client.leave()
            await rig.until(lambda: not rig.worker.is_busy)
        assert (await rig.ask(post(wish("nope"), "authorization: Bearer secret"))).status == 404
        await rig.route(keys=[user_key("secret", concurrent=1)])
        for _ in range(2):
            assert (await rig.ask(post(None, "authorization: Bearer secret"))).status == 503

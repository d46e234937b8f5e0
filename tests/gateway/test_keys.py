"""API keys: who may come in, for which models, how often, and how many at once, whichever worker is asked."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw_core.gateway.board import Board, key_cell
from llmgw_core.gateway.limit import MINUTE_S, wait_for_rate
from llmgw_core.model.route import ModelRoute
from llmgw_core.testing.gateway_rig import Rig, a_gateway, user_key
from llmgw_core.testing.http_words import answer, get, post, wish

GOOD = answer()
KEY = "authorization: Bearer secret"
NOON = 1_800_000_000.0
assert NOON % MINUTE_S == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "an API key is needed"),
        (["authorization: Bearer wrong"], "not known"),
        (["authorization: Bearer "], "an API key is needed"),
        (["authorization: Basic secret"], "an API key is needed"),
        (["authorization: Bearer old"], "expired"),
        (["authorization: Bearer secret2"], "not known"),
        (["x-api-key: wrong"], "not known"),
    ],
)
async def test_who_is_not_let_in(fields: list[str], said: str) -> None:
    async with a_gateway(authenticates=True) as rig:
        engine = await rig.engine([GOOD])
        await rig.route(engine, keys=[user_key("secret"), user_key("old", "k2", expires_at=NOON - 1)])
        client = await rig.client()
        for request in (post(None, *fields), get("/v1/models", *fields), get("/metrics", *fields)):
            found = await client.ask(request)
            assert (found.status, found.error["type"]) == (401, "authentication_error")
            assert said in found.error["message"]
            assert found.fields["www-authenticate"] == "Bearer"
        assert (await client.ask(get("/health"))).status == 200
        assert engine.connections == 0


@pytest.mark.parametrize("field", [KEY, "x-api-key: secret", "Authorization: bearer secret"])
async def test_who_is_let_in(field: str) -> None:
    async with a_gateway(authenticates=True) as rig:
        await rig.route(await rig.engine([GOOD]), keys=[user_key("secret", expires_at=NOON + 1)])
        assert (await rig.ask(post(None, field))).status == 200
        rig.now[0] += 2
        assert (await rig.ask(post(None, field))).status == 401


async def test_a_revoked_key_opens_nothing_more_and_cuts_nothing_off() -> None:
    async with a_gateway(authenticates=True) as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, GOOD])
        await rig.route(engine, keys=[user_key("secret")])
        client = await rig.client()
        await client.send(post(None, KEY))
        await engine.until(lambda: engine.requests)
        await rig.route(engine)
        go_on.set()
        assert (await client.answer()).status == 200
        assert (await client.ask(post(None, KEY))).status == 401


async def test_models_that_a_key_may_not_use_are_not_there() -> None:
    async with a_gateway(authenticates=True) as rig:
        engine = await rig.engine([GOOD])
        routes = [
            ModelRoute(name, targets=(engine.target,), aliases=(f"{name}-alias",))
            for name in ("org/open", "org/closed")
        ]
        rig.take(*routes, keys=[user_key("secret", models=("org/open",)), user_key("all", "k2")])
        client = await rig.client()
        statuses = {
            name: (await client.ask(post(wish(name), KEY))).status
            for name in ("org/open", "org/open-alias", "org/closed", "org/closed-alias", "nope")
        }
        assert statuses == {
            "org/open": 200,
            "org/open-alias": 200,
            "org/closed": 404,
            "org/closed-alias": 404,
            "nope": 404,
        }
        listed = await client.ask(get("/v1/models", KEY))
        assert [each["id"] for each in listed.json["data"]] == ["org/open"]
        assert (await client.ask(get("/v1/models/org/closed", KEY))).status == 404
        assert (await client.ask(get("/v1/models/org/closed", "x-api-key: all"))).status == 200


async def test_requests_a_minute() -> None:
    async with a_gateway(authenticates=True) as rig:
        await rig.route(await rig.engine([GOOD]), keys=[user_key("secret", requests_per_minute=3), user_key("b", "k2")])
        rig.now[0] = NOON + 20
        client = await rig.client()
        assert [(await client.ask(post(None, KEY))).status for _ in range(4)] == [200, 200, 200, 429]
        found = await client.ask(post(None, KEY))
        assert (found.error["type"], found.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert found.fields["retry-after"] == "40"
        assert (await client.ask(post(None, "x-api-key: b"))).status == 200
        assert (await client.ask(get("/v1/models", KEY))).status == 200
        rig.now[0] += 40
        statuses = []
        for _ in range(6):
            statuses.append((await client.ask(post(None, KEY))).status)
            rig.now[0] += 10
        assert statuses == [200, 429, 200, 429, 200, 429]


async def test_retry_after_is_long_enough() -> None:
    async with a_gateway(authenticates=True) as rig:
        await rig.route(await rig.engine([GOOD]), keys=[user_key("secret", requests_per_minute=7)])
        client = await rig.client()
        for _ in range(40):
            found = await client.ask(post(None, KEY))
            if found.status == 429:
                rig.now[0] += int(found.fields["retry-after"])
                assert (await client.ask(post(None, KEY))).status == 200


async def test_requests_at_once() -> None:
    async with a_gateway(authenticates=True) as rig:
        go_on = trio.Event()
        engine = await rig.engine([go_on, GOOD])
        await rig.route(engine, keys=[user_key("secret", concurrent=2)])
        running = [await rig.client() for _ in range(2)]
        for each in running:
            await each.send(post(None, KEY))
        await engine.until(lambda: len(engine.requests) == 2)
        found = await rig.ask(post(None, KEY))
        assert (found.status, found.fields["retry-after"]) == (429, "1")
        go_on.set()
        for each in running:
            await each.answer()
        assert (await rig.ask(post(None, KEY))).status == 200


async def test_limits_hold_over_two_workers() -> None:
    board = Board(2)
    keys = [user_key("secret", concurrent=3, requests_per_minute=5)]
    async with (
        a_gateway(authenticates=True, board=board, number=0) as one,
        a_gateway(authenticates=True, board=board, number=1) as two,
    ):
        go_on = trio.Event()
        engine = await one.engine([go_on, GOOD])
        for rig in (one, two):
            await rig.route(engine, keys=keys)
        running = [await rig.client() for rig in (one, two, one)]
        for each in running:
            await each.send(post(None, KEY))
        await engine.until(lambda: len(engine.requests) == 3)
        assert one.in_flight() == two.in_flight() == 3
        assert "in flight" in (await two.ask(post(None, KEY))).error["message"]
        go_on.set()
        for each in running:
            await each.answer()
        assert [(await rig.ask(post(None, KEY))).status for rig in (two, one, two, one)] == [200, 200, 429, 429]
        assert _answered(one) == _answered(two) == 5


def _answered(rig: Rig) -> float:
    return rig.counts()['llmgw_gateway_key_requests_total{key="k1",model="m"}']


async def test_two_workers_choose_by_what_both_have_in_flight() -> None:
    board = Board(2)
    async with a_gateway(board=board, number=0) as one, a_gateway(board=board, number=1) as two:
        go_on = trio.Event()
        engines = [await one.engine([go_on, GOOD]) for _ in range(2)]
        for rig in (one, two):
            await rig.route(*engines)
        running = []
        for rig in (one, two, two, one, two, two):
            running.append(client := await rig.client())
            await client.send(post())
            sent = len(running)
            await rig.until(lambda sent=sent: sum(len(each.requests) for each in engines) == sent)  # type: ignore[misc]
        assert [len(each.requests) for each in engines] == [3, 3]
        go_on.set()
        for client in running:
            await client.answer()


async def test_a_dead_workers_requests_block_no_key() -> None:
    board = Board(2)
    async with a_gateway(authenticates=True, board=board) as rig:
        await rig.route(await rig.engine([GOOD]), keys=[user_key("secret", concurrent=1)])
        place = rig.places.keys["k1"]
        board.rows[1][key_cell(place)] = 1
        assert (await rig.ask(post(None, KEY))).status == 429
        board.forget_worker(1)
        assert (await rig.ask(post(None, KEY))).status == 200


# The law of `wait_for_rate`.

_MOST = st.integers(1, 40)


def _play(arrivals: list[float], most: int) -> list[float]:
    """When requests that come then were let through."""
    taken: list[float] = []
    for now in arrivals:
        minute = now // MINUTE_S
        this = sum(each // MINUTE_S == minute for each in taken)
        before = sum(each // MINUTE_S == minute - 1 for each in taken)
        if not wait_for_rate(now, this, before, most):
            taken.append(now)
    return taken


@given(st.lists(st.floats(0, 400), max_size=200), _MOST)
@settings(deadline=None)
def test_no_minute_of_the_clock_has_more_than_the_limit_and_no_60_s_twice_as_much(
    arrivals: list[float], most: int
) -> None:
    taken = _play(sorted(arrivals), most)
    for each in taken:
        assert sum(other // MINUTE_S == each // MINUTE_S for other in taken) <= most
        assert sum(each <= other < each + MINUTE_S for other in taken) <= 2 * most


@given(_MOST, st.floats(0, 59))
def test_whoever_asks_evenly_as_often_as_allowed_is_never_refused(most: int, begin: float) -> None:
    arrivals = [begin + (each + 0.5) * MINUTE_S / most for each in range(3 * most)]
    assert _play(arrivals, most) == arrivals


@given(st.floats(0, 1e9), st.integers(0, 40), st.integers(0, 40), _MOST)
def test_after_the_wait_there_is_room(now: float, this: int, before: int, most: int) -> None:
    this, before = min(this, most), min(before, most)
    wait = wait_for_rate(now, this, before, most)
    assert 0 <= wait <= MINUTE_S
    then = now + wait + 0.001
    if then // MINUTE_S != now // MINUTE_S:
        this, before = 0, this
    assert not wait or not wait_for_rate(then, this, before, most)

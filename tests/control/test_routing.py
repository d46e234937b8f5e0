"""The table that gateways go by: what is published, what each has taken, who is remembered."""

from __future__ import annotations

import json

import pytest
import trio
from attrs import define, field

from llmgw_core.control.routing import NoMoreTables, RoutesBook, Subscription
from llmgw_core.model.route import Lingering, ModelRoute, RouteTable, Target, UserKey
from llmgw_core.testing.made_fleet import DEADLINE_S
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, ROUTES_LIMIT_BYTES, Routes
from llmgw_core.wire.text import decode, encode

NOW = 1_700_000_000.0
KEY = UserKey("k1", "00" * 32)


@define
class Clock:
    now: float = NOW
    rung: int = 0
    book: RoutesBook = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.book = RoutesBook(lambda: self.now, self.ring)

    def ring(self) -> None:
        self.rung += 1

    def publish(self, *generations: int) -> None:
        targets = tuple(Target("m/1", each, "192.0.2.1", 18000) for each in generations)
        self.book.publish((ModelRoute("m", targets=targets),), {"m": NOW - 0.5})

    def silent_since(self) -> list[float | None]:
        return [each.silent_since for each in self.book.observed()]


async def take(subscription: Subscription, *lingering: Lingering) -> RouteTable:
    with trio.fail_after(DEADLINE_S):
        table = await subscription.next_table()
    subscription.taken(table.version, lingering)
    return table


async def test_who_subscribes_gets_the_whole_table_at_once_and_the_next_one_when_it_is_another() -> None:
    clock = Clock()
    clock.publish(1)
    gateway = clock.book.subscribe("edge")
    first = await take(gateway)
    assert [target.generation for target in first.models[0].targets] == [1]
    assert first.models[0].created == int(NOW) - 1
    clock.publish(1)
    with trio.move_on_after(0.01) as waited:
        await gateway.next_table()
    assert waited.cancelled_caught, "nothing has changed"
    clock.publish(2)
    second = await take(gateway)
    assert second.version > first.version


async def test_nothing_is_given_before_it_is_known_what_there_is() -> None:
    clock = Clock()
    gateway = clock.book.subscribe("edge")
    clock.book.publish_keys((KEY,))
    with trio.move_on_after(0.01) as waited:
        await gateway.next_table()
    assert waited.cancelled_caught
    clock.publish(1)
    assert (await take(gateway)).keys == (KEY,)


async def test_of_the_tables_that_come_while_a_gateway_is_busy_it_gets_the_last() -> None:
    clock = Clock()
    gateway = clock.book.subscribe("edge")
    for generation in (1, 2, 3):
        clock.publish(generation)
    table = await take(gateway)
    assert [target.generation for target in table.models[0].targets] == [3]
    assert gateway.behind_since is None


async def test_keys_change_the_table_at_once() -> None:
    clock = Clock()
    clock.publish(1)
    gateway = clock.book.subscribe("edge")
    assert (await take(gateway)).keys == ()
    clock.book.publish_keys((KEY,))
    assert (await take(gateway)).keys == (KEY,)
    clock.book.publish_keys(())
    assert (await take(gateway)).keys == ()


def test_a_version_grows_over_restarts_and_when_the_clock_was_set_back() -> None:
    clock = Clock()
    versions = []
    for generation, now in enumerate((NOW, NOW, NOW - 100.0, NOW + 1.0)):
        clock.now = now
        clock.publish(generation)
        assert clock.book.latest is not None
        versions.append(clock.book.latest.table.version)
    assert versions == [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002, 1_700_000_001_000]
    later = Clock(NOW + 2.0)
    later.publish(1)
    assert later.book.latest is not None
    assert later.book.latest.table.version > versions[-1]


async def test_what_a_gateway_has_taken_is_what_it_routes_by() -> None:
    clock = Clock()
    clock.publish(1)
    gateway = clock.book.subscribe("edge")
    (seen,) = clock.book.observed()
    assert seen.routes is None, "it may have a table from before"
    table = await take(gateway)
    clock.publish(2)
    (seen,) = clock.book.observed()
    assert seen.routes == frozenset({("m/1", 1)})
    gateway.taken(table.version + 99, ())
    (seen,) = clock.book.observed()
    assert seen.routes == frozenset({("m/1", 1)}), "a version that it was never given counts for nothing"
    await take(gateway, Lingering("m/1", 1, 3), Lingering("m/1", 0, 0))
    (seen,) = clock.book.observed()
    assert (seen.routes, dict(seen.lingering)) == (frozenset({("m/1", 2)}), {("m/1", 1): 3})


async def test_a_gateway_that_does_not_take_its_table_is_silent_from_when_there_was_one() -> None:
    clock = Clock()
    clock.publish(1)
    gateway = clock.book.subscribe("edge")
    await take(gateway)
    clock.now += 5.0
    clock.publish(2)
    clock.now += 5.0
    clock.publish(3)
    assert clock.silent_since() == [NOW + 5.0]
    await take(gateway)
    assert clock.silent_since() == [None]


async def test_a_gateway_that_says_the_same_again_is_silent_all_the_same() -> None:
    """One of its workers hangs, say: the table is never taken, and what lingers changes all the time."""
    clock = Clock()
    clock.publish(1)
    gateway = clock.book.subscribe("edge")
    table = await take(gateway)
    clock.now += 5.0
    clock.publish(2)
    for requests in range(3):
        clock.now += 5.0
        gateway.taken(table.version, (Lingering("m/1", 0, requests + 1),))
        assert clock.silent_since() == [NOW + 5.0]
    await take(gateway)
    assert clock.silent_since() == [None]


async def test_one_that_went_is_remembered_with_what_it_had_until_nobody_waits_for_it() -> None:
    clock = Clock()
    clock.publish(1)
    gateway = clock.book.subscribe("edge", "i1")
    await take(gateway)
    gateway.lose(NOW)
    with pytest.raises(NoMoreTables):
        await gateway.next_table()
    clock.now += 59.0
    assert clock.book.forget_silent(60.0) == []
    (seen,) = clock.book.observed()
    assert (seen.name, seen.routes, seen.silent_since) == ("edge/i1", frozenset({("m/1", 1)}), NOW)
    clock.now += 11.0
    assert clock.book.forget_silent(60.0) == [("edge", "i1")]
    assert clock.book.observed() == ()


async def test_one_that_comes_again_is_the_same_and_the_end_of_its_older_life_changes_nothing() -> None:
    clock = Clock()
    clock.publish(1)
    older = clock.book.subscribe("edge", "i1")
    await take(older)
    newer = clock.book.subscribe("edge", "i1")
    older.lose(NOW)
    (seen,) = clock.book.observed()
    assert seen.routes == frozenset({("m/1", 1)})
    await take(newer)
    assert clock.silent_since() == [None]
    clock.book.subscribe("edge", "i2")
    assert [each.name for each in clock.book.observed()] == ["edge/i1", "edge/i2"]


@pytest.mark.parametrize("instances", [["i1", "i2", "i3"], ["i1", "i1", "i1"]], ids=["crashes", "loses its link"])
async def test_one_that_comes_again_and_again_and_takes_nothing_is_silent_from_the_first_time(
    instances: list[str],
) -> None:
    clock = Clock()
    clock.publish(1)
    for instance in instances:
        gateway = clock.book.subscribe("edge", instance)
        await gateway.next_table()
        assert set(clock.silent_since()) == {NOW}
        clock.now += 5.0
        gateway.lose(clock.now)
    gateway = clock.book.subscribe("edge", instances[-1])
    await take(gateway)
    assert gateway.observed().silent_since is None
    assert clock.book.subscribe("edge", "another").observed().silent_since == (
        NOW if len(set(instances)) > 1 else clock.now
    )


async def test_one_that_is_closed_is_no_gateway_any_more() -> None:
    clock = Clock()
    gateway = clock.book.subscribe("embedded")
    gateway.close()
    assert clock.book.observed() == ()
    with pytest.raises(NoMoreTables):
        await gateway.next_table()


def test_gateways_of_before_a_restart_may_route_anywhere_until_they_are_back() -> None:
    clock = Clock()
    clock.book.load([("edge", "i1")], NOW)
    (seen,) = clock.book.observed()
    assert (seen.routes, seen.silent_since) == (None, NOW)


async def test_a_table_is_encoded_once_for_all() -> None:
    clock = Clock()
    clock.publish(1)
    published = clock.book.latest
    assert published is not None
    text = await published.text()
    assert decode(text) == Routes(published.table)
    assert await published.text() is text


def test_two_thousand_replicas_and_five_thousand_keys_fit_into_what_a_gateway_hears() -> None:
    targets = [Target(f"{'m' * 60}/{n}", 9999, "192.168.100.100", 18000, "k" * 43) for n in range(2000)]
    models = tuple(ModelRoute(f"{'m' * 58}{n:02}", targets=tuple(targets[n::50])) for n in range(50))
    names = tuple(model.name for model in models[:10])
    keys = tuple(UserKey(f"k{n:09}", "0" * 64, "n" * 64, NOW, names, 1000, 1000) for n in range(5000))
    text = encode(Routes(RouteTable(1_700_000_000_000, models, keys)))
    assert MESSAGE_LIMIT_BYTES < len(text) < ROUTES_LIMIT_BYTES / 2
    assert json.loads(text)["kind"] == "Routes"


def test_no_key_of_an_engine_is_in_a_repr() -> None:
    assert "sesame" not in repr(Target("m/1", 1, "192.0.2.1", 18000, "sesame"))

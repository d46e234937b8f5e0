"""What happens while the store writes: memory and store end with the same last word, whoever is woken first."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from attrs import define, field

from llmgw_core.control.agents import serve_agent
from llmgw_core.control.fleet import Connection, Fleet, Node
from llmgw_core.control.loop import plan_for_ever
from llmgw_core.control.operators import _answer
from llmgw_core.control.plane import Plane
from llmgw_core.control.revocation import revoke, unrevoke
from llmgw_core.control.visit import Visit
from llmgw_core.control.writer import Writer
from llmgw_core.model.drain import Drain
from llmgw_core.model.identity import Identity, Role
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.plan.admission import Caller
from llmgw_core.plan.drain import DrainState
from llmgw_core.store.change import Change, ModelScaled, SerialRevoked, SerialUnrevoked
from llmgw_core.store.database import Database, StoreFull
from llmgw_core.store.reading import Revocation
from llmgw_core.testing.made_world import a_catalog, a_profile, offers_of
from llmgw_core.testing.running_node import DEADLINE_S, wait_until
from llmgw_core.wire.message import PROTOCOL, Ask, Failed, Hello

NOW = 1_700_000_000.0
SERIAL = "ab" * 20


@define
class Disk:
    """In place of the writer: each write takes the next of these times, and is stored in the order of asking."""

    takes_s: deque[float] = field(factory=deque)
    stored: list[Change] = field(factory=list)
    is_full: bool = False

    async def write(self, *changes: Change) -> None:
        if not self.is_full:
            self.stored += changes
        await trio.sleep(self.takes_s.popleft() if self.takes_s else 0)
        if self.is_full:
            raise StoreFull("the disk is full")

    def of(self, *kinds: type[Change]) -> list[Change]:
        return [each for each in self.stored if isinstance(each, kinds)]


@define(eq=False)
class Peer:
    """A link whose other end says nothing, until it is gone."""

    gone: trio.Event = field(factory=trio.Event)
    closed: Any = None

    async def say(self, message: object) -> None:
        await trio.lowlevel.checkpoint()

    async def hear(self) -> object:
        await self.gone.wait()
        raise LinkClosed("the connection is gone")

    async def refuse(self, reason: str) -> None:
        await trio.lowlevel.checkpoint()


def a_plane(disk: Disk, directory: Path) -> Plane:
    return Plane(Fleet(NOW), Database(directory / "store.db"), cast(Writer, disk), lambda: NOW)


def serving(plane: Plane) -> Plane:
    plane.deployment.catalog = a_catalog({"m": a_profile()})
    plane.deployment.offers = offers_of(plane.deployment.catalog)
    return plane


def an_operator() -> Connection:
    identity, caller = Identity(Role.OPERATOR, "alice"), Caller("alice", "key", "address")
    return Connection(1, cast(Link, Peer()), identity, "01", caller, trio.CancelScope())


async def scaled(plane: Plane, connection: Connection, replicas: int) -> None:
    answer = await _answer(plane, connection, Ask(1, "scale", {"model": "m", "replicas": replicas}))
    assert not isinstance(answer, Failed), answer


async def test_of_two_orders_at_once_the_one_that_is_stored_last_counts(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    disk = Disk(deque([2.0, 1.0]))
    plane = serving(a_plane(disk, tmp_path))
    async with trio.open_nursery() as nursery:
        for replicas in (3, 5):
            nursery.start_soon(scaled, plane, an_operator(), replicas)
    (*_, last) = disk.of(ModelScaled)
    assert plane.deployment.scales == {"m": cast(ModelScaled, last).replicas}


async def test_an_order_whose_link_is_closed_while_it_is_stored_counts_nevertheless(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    disk = Disk(deque([2.0]))
    plane = serving(a_plane(disk, tmp_path))
    with trio.move_on_after(1):
        await scaled(plane, an_operator(), 3)
    assert disk.of(ModelScaled) == [ModelScaled("m", 3)]
    assert plane.deployment.scales == {"m": 3}


async def test_what_is_revoked_while_an_earlier_revocation_is_taken_back_stays_revoked(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    disk = Disk(deque([2.0]))
    plane = a_plane(disk, tmp_path)
    plane.fleet.revoked[SERIAL] = Revocation(SERIAL, "", NOW, "alice", "")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(unrevoke, plane, "alice", {"serial": SERIAL})
        await trio.sleep(1)
        nursery.start_soon(revoke, plane, "bob", {"serial": SERIAL})
    assert [type(each) for each in disk.of(SerialRevoked, SerialUnrevoked)] == [SerialUnrevoked, SerialRevoked]
    assert SERIAL in plane.fleet.revoked
    await unrevoke(plane, "alice", {"serial": SERIAL})
    assert SERIAL not in plane.fleet.revoked


async def test_a_node_whose_link_ends_while_its_next_one_cannot_be_stored_is_not_connected(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    disk = Disk()
    plane = a_plane(disk, tmp_path)
    first, second = Peer(), Peer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_agent, plane, a_visit(first))
        await trio.sleep(1)
        assert plane.fleet.nodes["gpu1"].connection is not None
        disk.is_full, disk.takes_s = True, deque([2.0])
        nursery.start_soon(refused, plane, a_visit(second))
        await trio.sleep(1)
        first.gone.set()
    assert plane.fleet.nodes["gpu1"].connection is None


def a_visit(peer: Peer) -> Visit:
    hello, identity = Hello(PROTOCOL, "gpu1", "1", "i1"), Identity(Role.NODE, "gpu1")
    return Visit(cast(Link, peer), hello, identity, "02", "key", NOW, NOW + 1e6, "address")


async def refused(plane: Plane, visit: Visit) -> None:
    with pytest.raises(StoreFull):
        await serve_agent(plane, visit)


async def test_a_first_catalog_that_comes_while_there_is_none_withdraws_no_route(tmp_path: Path) -> None:
    """A drain's end is all that is stored where there is no catalog."""
    disk = Disk(deque([0.2]))
    plane = a_plane(disk, tmp_path)
    plane.fleet.nodes["gpu1"] = Node("gpu1", "", "", 1e9, "", "", 1, None, 0.0, NOW)
    plane.deployment.drains["gpu1"] = Drain("gpu1", "alice", NOW, None, False, 1)
    plane.deployment.drain_states["gpu1"] = DrainState.BLOCKED
    with trio.fail_after(2 * DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(plan_for_ever, plane)
            await wait_until(lambda: disk.stored, "the drain's end is being stored")
            serving(plane)
            deployment = plane.deployment
            await wait_until(lambda: deployment.drain_states["gpu1"] is not DrainState.BLOCKED, "it is stored")
            nursery.cancel_scope.cancel()
    assert plane.routes.latest is None

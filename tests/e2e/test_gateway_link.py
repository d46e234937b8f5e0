"""A gateway's link over real TLS: it is told the whole table at once, and again whenever that changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.control.routing import RoutesBook
from llmgw_core.model.identity import Role
from llmgw_core.model.route import Absent, Lingering, RouteTable
from llmgw_core.pki.certificate import make_key, make_request
from llmgw_core.testing.made_fleet import MadeControl, Peer, running_control, some_facts, until
from llmgw_core.wire.message import (
    PROTOCOL,
    CertificateRenewed,
    Heartbeat,
    HeartbeatSeen,
    Hello,
    RenewCertificate,
    Report,
    Routes,
    RoutesTaken,
)

CATALOG = """
[models.m]
source = "/models/m"
profiles = ["p"]

[profiles.p]
engine = "sim"
"""


@define
class Gateway:
    peer: Peer

    async def table(self) -> RouteTable:
        """The next one that it is told."""
        routes = await self.peer.expect(Routes)
        table: RouteTable = routes.table
        return table

    async def take(self, *lingering: Lingering) -> RouteTable:
        table = await self.table()
        await self.peer.link.say(RoutesTaken(table.version, lingering))
        return table


@pytest.fixture(name="plane")
async def _plane(tmp_path: Path) -> AsyncIterator[MadeControl]:
    async with running_control(tmp_path) as plane:
        yield plane


@asynccontextmanager
async def gateway_of(plane: MadeControl, name: str = "edge", instance: str = "i1") -> AsyncIterator[Gateway]:
    async with plane.joined(plane.authority.issue(Role.GATEWAY, name), name, instance) as peer:
        yield Gateway(peer)


async def test_the_whole_table_comes_at_once_and_again_when_it_changed(plane: MadeControl) -> None:
    async with gateway_of(plane) as gateway:
        empty = await gateway.take()
        assert (empty.models, empty.keys) == ((), ())
        await plane.ask("apply", name="catalog", text=CATALOG)
        (model,) = (await gateway.take()).models
        assert model.name == "m"
        assert model.created > 0
        assert model.absent == (Absent("m/1", "unplaced", "needs a node, none takes it"),)


async def test_several_gateways_are_told_under_one_name_and_under_two(plane: MadeControl) -> None:
    async with gateway_of(plane) as one, gateway_of(plane, instance="i2") as two, gateway_of(plane, "other") as three:
        versions = [(await each.take()).version for each in (one, two, three)]
        await plane.ask("apply", name="catalog", text=CATALOG)
        again = [(await each.take()).version for each in (one, two, three)]
        assert len(set(versions)) == len(set(again)) == 1
        assert again[0] > versions[0]


async def test_beats_are_answered_and_a_word_that_is_not_a_gateways_ends_the_link(plane: MadeControl) -> None:
    async with gateway_of(plane) as gateway:
        await gateway.take()
        await gateway.peer.link.say(Heartbeat(7))
        assert await gateway.peer.hear() == HeartbeatSeen(7)
        await gateway.peer.link.say(RoutesTaken(1))
        await gateway.peer.link.say(Heartbeat(8))
        assert await gateway.peer.hear() == HeartbeatSeen(8)
        await gateway.peer.link.say(Report(1, some_facts()))
        assert "Report from a gateway" in await gateway.peer.refusal()


async def test_a_gateway_that_does_not_hear_keeps_nobody_waiting(plane: MadeControl) -> None:
    async with gateway_of(plane, instance="slow") as slow, gateway_of(plane) as quick:
        await quick.take()
        for replicas in range(2, 9):
            text = CATALOG.replace('source = "/models/m"', f'source = "/models/m"\nreplicas = {replicas}')
            await plane.ask("apply", name="catalog", text=text)
            table = await quick.take()
        assert len(table.models[0].absent) == 8
        last = await slow.table()
        while last.version < table.version:
            last = await slow.table()
        assert last == table


async def test_the_same_instance_that_calls_again_replaces_its_older_link(plane: MadeControl) -> None:
    async with gateway_of(plane) as older:
        await older.take()
        async with gateway_of(plane) as newer:
            assert "replaced by a newer connection" in await older.peer.refusal()
            await newer.take()


async def test_a_gateway_whose_certificate_is_revoked_is_off_at_once_and_stays_out(plane: MadeControl) -> None:
    files = plane.authority.issue(Role.GATEWAY, "edge")
    async with plane.joined(files, "edge") as peer:
        await peer.expect(Routes)
        await plane.ask("revoke", name="edge")
        assert "is revoked" in await peer.refusal()
    async with plane.connect(files) as link:
        await link.say(Hello(PROTOCOL, "edge"))
        assert "is revoked" in await Peer(link).refusal()


async def test_its_certificate_is_renewed_over_the_link(tmp_path: Path) -> None:
    async with running_control(tmp_path, renews=True) as plane:
        files = plane.authority.issue(Role.GATEWAY, "edge", timedelta(days=70))
        async with plane.joined(files, "edge") as peer:
            await peer.expect(Routes)
            await peer.link.say(RenewCertificate(make_request(make_key()).decode()))
            renewed = await peer.expect(CertificateRenewed)
            assert renewed.reason == ""
            assert "BEGIN CERTIFICATE" in renewed.certificate_pem


async def test_a_new_control_plane_goes_on_with_higher_versions(tmp_path: Path) -> None:
    async with running_control(tmp_path) as plane:
        authority = plane.authority
        await plane.ask("apply", name="catalog", text=CATALOG)
        async with gateway_of(plane) as gateway:
            before = await gateway.table()
            while not before.models:
                before = await gateway.table()
    async with (
        running_control(tmp_path, authority=authority, state=tmp_path / "state") as plane,
        gateway_of(plane) as gateway,
    ):
        after = await gateway.take()
    assert after.version > before.version
    assert after.models == before.models


async def test_a_gateway_in_the_same_process_is_one_like_the_others(tmp_path: Path) -> None:
    given: list[RouteTable] = []

    async def embedded(routes: RoutesBook) -> None:
        subscription = routes.subscribe("embedded")
        while True:
            given.append(await subscription.next_table())
            subscription.taken(given[-1].version)

    async with running_control(tmp_path, embedded=embedded) as plane:
        await plane.ask("apply", name="catalog", text=CATALOG)
        await until(lambda: given and given[-1].models)

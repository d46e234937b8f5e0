"""A gateway's link over real TLS: it is told the whole table at once, and again whenever that changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.control.routing import RoutesBook
from llmgw_core.model.identity import Role
from llmgw_core.model.route import Absent, Lingering, RouteTable, UserKey
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

    async def beat(self) -> None:
        """What was said before is known when it is answered."""
        await self.peer.link.say(Heartbeat(7))
        assert await self.peer.hear() == HeartbeatSeen(7)


@pytest.fixture(name="plane")
async def _plane(tmp_path: Path) -> AsyncIterator[MadeControl]:
    async with running_control(tmp_path) as plane:
        await plane.ask("apply", name="nothing", text="")
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
        await gateway.beat()
        await gateway.peer.link.say(RoutesTaken(1))
        await gateway.beat()
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


async def test_before_a_catalog_was_ever_applied_a_gateway_is_told_nothing(tmp_path: Path) -> None:
    """As of a store that was lost: what it serves by then goes on, as the engines do."""
    async with running_control(tmp_path) as plane, gateway_of(plane) as gateway:
        await plane.ask("create-key", name="ci")
        await gateway.beat()  # answered before any table
        (seen,) = await plane.ask("gateways")
        assert (seen["state"], seen["version"], seen["current"]) == ("connected", 0, 0)
        await plane.ask("apply", name="nothing", text="")
        assert len((await gateway.take()).keys) == 1


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


async def test_a_user_key_is_told_once_is_known_by_its_digest_and_is_gone_when_it_is_revoked(
    plane: MadeControl, tmp_path: Path
) -> None:
    await plane.ask("apply", name="catalog", text=CATALOG.replace("profiles =", 'aliases = ["gpt"]\nprofiles =', 1))
    made = await plane.ask("create-key", name="ci", models=["gpt"], rpm=60, concurrent=4, expires_s=3600.0)
    assert made["key"].startswith("sk-llmgw-")
    assert len(made["key"]) == len("sk-llmgw-") + 43
    async with gateway_of(plane) as gateway:
        table = await gateway.take()
        while not table.models:
            table = await gateway.take()
        digest = hashlib.sha256(made["key"].encode()).hexdigest()
        expires = made["created"] + 3600.0
        assert table.keys == (UserKey(made["id"], digest, "ci", expires, ("m",), 60, 4),)
        await plane.ask("revoke-key", key="ci")
        assert (await gateway.take()).keys == ()
    (listed,) = await plane.ask("keys")
    assert listed["state"] == "revoked"
    assert made["key"] not in json.dumps([listed, await plane.ask("events")])
    for file in (tmp_path / "state").iterdir():
        assert made["key"].encode() not in file.read_bytes(), "nobody who reads the disk could use it"
    assert plane.log.find(made["key"]) == []


async def test_a_key_leaves_the_table_when_its_end_has_come(plane: MadeControl) -> None:
    await plane.ask("apply", name="catalog", text=CATALOG)
    await plane.ask("create-key", name="short", expires_s=1.5)
    async with gateway_of(plane) as gateway:
        table = await gateway.take()
        while table.keys:
            table = await gateway.take()
    assert [each["state"] for each in await plane.ask("keys")] == ["expired"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "ci"}, "there is a key 'ci' already"),
        ({"name": ""}, "cannot be the name of a key"),
        ({"name": "k0123456789"}, "cannot be the name of a key"),
        ({"name": "x", "models": ["nope"]}, r"has no model 'nope' \(there are: m\); --force"),
        ({"name": "x", "rpm": -1}, "rpm: expected 0 to"),
        ({"name": "x", "expires_s": -1.0}, "expires: expected"),
    ],
)
async def test_what_cannot_be_a_key_says_why(plane: MadeControl, asked: dict[str, object], said: str) -> None:
    await plane.ask("apply", name="catalog", text=CATALOG)
    await plane.ask("create-key", name="ci")
    with pytest.raises(AssertionError, match=said):
        await plane.ask("create-key", **asked)


async def test_a_name_is_free_again_when_its_key_is_revoked_and_a_model_may_be_one_to_come(plane: MadeControl) -> None:
    first = await plane.ask("create-key", name="ci", models=["later"], force=True)
    await plane.ask("revoke-key", key=first["id"])
    second = await plane.ask("create-key", name="ci")
    assert [(each["id"], each["state"]) for each in await plane.ask("keys")] == [
        (first["id"], "revoked"),
        (second["id"], "live"),
    ]
    with pytest.raises(AssertionError, match="no key 'nope' that is not revoked"):
        await plane.ask("revoke-key", key="nope")


async def test_keys_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running_control(tmp_path) as plane:
        authority = plane.authority
        await plane.ask("apply", name="nothing", text="")
        made = await plane.ask("create-key", name="ci")
    async with (
        running_control(tmp_path, authority=authority, state=tmp_path / "state") as plane,
        gateway_of(plane) as gateway,
    ):
        assert [key.id for key in (await gateway.take()).keys] == [made["id"]]


async def test_operators_see_each_gateway_and_the_table_that_it_has_taken(plane: MadeControl) -> None:
    async with gateway_of(plane) as gateway:
        table = await gateway.take(Lingering("m/1", 1, 3))
        await gateway.beat()
        (seen,) = await plane.ask("gateways")
        assert (seen["name"], seen["instance"], seen["state"]) == ("edge", "i1", "connected")
        assert seen["version"] == seen["current"] == table.version
        assert seen["lingering"] == [{"replica": "m/1", "generation": 1, "requests": 3}]
        assert 88 <= seen["days_left"] <= 90
    await plane.log.wait_for("gateway disconnected")
    (seen,) = await plane.ask("gateways")
    assert seen["state"] == "gone", "a stop may still wait for it"

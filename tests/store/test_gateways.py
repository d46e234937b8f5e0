"""What is remembered for gateways: keys of users, when models came, and who was there."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from llmgw_core.store.change import GatewayConnected, GatewayForgotten, KeyCreated, KeyRevoked, ModelCreated
from llmgw_core.store.database import Database, StoreFailed
from llmgw_core.store.reading import read_created, read_gateways, read_keys

KEY = KeyCreated("k1", "ci", "00" * 32, 100.0, "alice", None, "[]", 0, 0)


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "store.db")) as database:
        yield database


def test_a_name_means_one_key_that_is_not_revoked(database: Database) -> None:
    database.commit([KEY])
    second = evolve(KEY, id="k2", digest="11" * 32)
    with pytest.raises(StoreFailed):
        database.commit([second])
    database.commit([KeyRevoked("k1", 200.0), second])
    assert [(key.id, key.revoked) for key in read_keys(database)] == [("k1", 200.0), ("k2", None)]


def test_a_key_is_revoked_once(database: Database) -> None:
    database.commit([KEY, KeyRevoked("k1", 200.0), KeyRevoked("k1", 300.0)])
    assert [key.revoked for key in read_keys(database)] == [200.0]


def test_when_a_model_came_first_is_when_it_came(database: Database) -> None:
    database.commit([ModelCreated("m", 100.0), ModelCreated("m", 200.0)])
    assert read_created(database) == {"m": 100.0}


def test_gateways_are_known_until_they_are_forgotten(database: Database) -> None:
    database.commit([GatewayConnected("edge", "i1", 1.0), GatewayConnected("edge", "i2", 2.0)])
    database.commit([GatewayConnected("edge", "i1", 3.0), GatewayForgotten("edge", "i2")])
    assert read_gateways(database) == (("edge", "i1"),)


def test_nobody_but_its_owner_reads_the_store_also_one_of_before(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.touch(0o644)
    path.chmod(0o644)
    with closing(Database(path)) as database:
        database.commit([KEY])
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.glob("old.db*")}
    assert set(modes.values()) == {0o600}, modes

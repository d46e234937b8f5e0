"""What was desired and decided, on the disk and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from llmgw_core.control.deployment import Deployment, TooMuchOffered, Unreadable, make_offers
from llmgw_core.model.catalog import Catalog, HealthTimings, Model, Profile, Sidecar
from llmgw_core.model.deployment import Assignment, ReplicaFailure, ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, Place
from llmgw_core.model.replica import Hca, Speculative
from llmgw_core.store.change import CatalogApplied, ModelScaled, ReplicaChanged
from llmgw_core.store.database import Database
from llmgw_core.store.reading import read_catalog
from llmgw_core.wire.record import offer_key, parse_record, render_record

CATALOG = """\
[models."Qwen/Qwen3-8B"]
source = "/models/qwen3"
replicas = 2
profiles = ["small"]

[profiles.small]
engine = "sim"
"""
PROFILE = Profile(
    engine="vllm",
    nodes=2,
    env={"A": "b"},
    sidecars={"cache": Sidecar(command=("cache", "{port}"))},
    speculative=Speculative("ngram", 4),
    health=HealthTimings(misses=5),
)
PLACES = (
    Place("gpu-01", "192.0.2.1", 18000, ("GPU-1",), (Hca("mlx5_0"),), "ib0"),
    Place("gpu-02", "192.0.2.2", 18001, ("GPU-2",)),
)
FAILURE = ReplicaFailure(5.0, 3, "gpu-02", 1, "crashed", "signal 9", "signal 9 (SIGKILL)", ("vllm",), "0.11", "last")
RECORD = ReplicaRecord(
    "qwen3/1",
    "qwen3",
    4,
    Assignment(Launch("qwen3/1", 4, Offer("key", "qwen3", "/m", "big", PROFILE), PLACES, 19000), 9.0, True, True),
    failures=2,
    failed_on={"gpu-02": 2},
    refused_by={"gpu-03": "digest"},
    first_failure=FAILURE,
    last_failure=FAILURE,
)


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "store.db")) as database:
        yield database


def test_a_record_comes_back_as_it_was() -> None:
    assert parse_record(render_record(RECORD)) == RECORD


def test_nothing_was_ever_applied(database: Database) -> None:
    deployment = Deployment()
    assert deployment.load(database) == []
    assert deployment.catalog is None
    assert deployment.wanted == {}


def test_what_was_applied_scaled_and_decided_is_there_again(database: Database) -> None:
    database.commit([CatalogApplied("c.toml", CATALOG, "alice", 1.0), ModelScaled("Qwen/Qwen3-8B", 5)])
    database.commit([ReplicaChanged("qwen3/1", render_record(RECORD))])
    deployment = Deployment()
    assert deployment.load(database) == []
    assert deployment.wanted == {"Qwen/Qwen3-8B": 5}
    assert deployment.records == {"qwen3/1": RECORD}
    assert [offer.source for offer in deployment.offers.values()] == ["/models/qwen3"]


def test_an_apply_ends_what_was_scaled_by_hand(database: Database) -> None:
    database.commit([CatalogApplied("c.toml", CATALOG, "alice", 1.0), ModelScaled("Qwen/Qwen3-8B", 5)])
    database.commit([CatalogApplied("c.toml", CATALOG, "bob", 2.0)])
    deployment = Deployment()
    deployment.load(database)
    assert deployment.wanted == {"Qwen/Qwen3-8B": 2}
    applied = read_catalog(database)
    assert applied is not None
    assert applied.by == "bob"


def test_what_nobody_can_read_is_said_and_the_rest_is_there(database: Database) -> None:
    database.commit([CatalogApplied("c.toml", "[models.x]\n", "alice", 1.0)])
    database.commit([ReplicaChanged("qwen3/1", render_record(RECORD))])
    deployment = Deployment()
    (said,) = deployment.load(database)
    assert "c.toml" in said
    assert set(deployment.records) == {"qwen3/1"}
    assert deployment.catalog is None, "and so nothing that runs is touched"


def test_a_record_that_nobody_can_read_stops_no_engine(database: Database) -> None:
    """Its shards would be taken for stale ones: the control plane does not start, and all goes on as it is."""
    database.commit([ReplicaChanged("a/1", '{"id": "a/1", "model": "a", "generation": "four"}')])
    with pytest.raises(Unreadable, match="cannot read what was decided about a/1"):
        Deployment().load(database)


def test_patience_and_memory_need_no_new_start_and_everything_else_does() -> None:
    key = offer_key("m", "/s", PROFILE)
    assert offer_key("m", "/s", evolve(PROFILE, health=HealthTimings(), min_gpu_memory_mib=8)) == key
    changed = [evolve(PROFILE, extra_args=("-x",)), evolve(PROFILE, env={}), evolve(PROFILE, nodes=1)]
    keys = {
        key,
        offer_key("n", "/s", PROFILE),
        offer_key("m", "/t", PROFILE),
        *(offer_key("m", "/s", each) for each in changed),
    }
    assert len(keys) == 6


def test_a_catalog_that_fits_into_no_message_is_refused() -> None:
    profile = Profile(engine="sim", extra_args=("x" * 3000,))
    models = {f"m{number}": Model(source="/m", profiles=("p",)) for number in range(1000)}
    with pytest.raises(TooMuchOffered, match="split it"):
        make_offers(Catalog(models, {"p": profile}))

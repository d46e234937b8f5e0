"""A change of a profile goes through a model's replicas without an outage, and stops where it would break them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llmgw_core.testing.cluster import wait_until
from llmgw_core.testing.four_nodes import FourNodes, four_nodes
from llmgw_core.testing.sim_model import sim_model


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourNodes]:
    with four_nodes(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture(name="fleet")
def _fleet(running: FourNodes) -> Iterator[FourNodes]:
    """All nodes are there and take replicas, and nothing runs."""
    yield running
    running.restore()


def test_a_change_goes_through_the_replicas_one_at_a_time_and_back(fleet: FourNodes) -> None:
    fleet.apply(sim_model("a", replicas=2))
    with fleet.never_fewer_ready():
        fleet.apply(sim_model("a", "--tokens-per-second", "500", replicas=2))
        wait_until(lambda: rolled_out(fleet, "a"), "the change is through")
        fleet.cluster.ctl("rollback", "a")
        wait_until(lambda: rolled_out(fleet, "a"), "it is back")
    argv = fleet.cluster.replica("a/1")["shards"][0]["argv"]
    assert "--tokens-per-second" not in argv


def rolled_out(fleet: FourNodes, model: str) -> bool:
    found = fleet.cluster.ask("rollout", model=model, retry=False, stop_first=False)
    return all(not each["outdated"] and not each["replacement"] for each in found["replicas"])


def test_a_change_that_fails_stops_at_the_first_replacement(fleet: FourNodes) -> None:
    before = fleet.place(sim_model("a", replicas=2))
    seen = len(fleet.cluster.events("replacement failed"))
    bad = sim_model("a", "--fault-crash-while-loading", "0.2", replicas=2)
    with fleet.never_fewer_ready():
        fleet.cluster.apply(bad)
        wait_until(lambda: fleet.cluster.events("replacement failed")[seen:], "the replacement fails")
        wait_until(lambda: is_blocked(fleet, "a", "failed"), "the roll-out is blocked")
    assert len(fleet.cluster.events("replacement failed")[seen:]) == 1
    assert {id: each["address"] for id, each in fleet.cluster.replicas().items()} == {
        id: each["address"] for id, each in before.items()
    }
    fleet.cluster.ctl("rollback", "a")
    wait_until(lambda: rolled_out(fleet, "a"), "all is as before")


def is_blocked(fleet: FourNodes, model: str, by: str) -> bool:
    """Each of its replicas, by what has this in its reason."""
    found = fleet.cluster.ask("rollout", model=model, retry=False, stop_first=False)
    return all(by in (each["blocked"] or "") for each in found["replicas"])


def test_a_typing_mistake_in_a_profile_costs_nothing(fleet: FourNodes) -> None:
    before = fleet.place(sim_model("a"))
    with fleet.never_fewer_ready():
        fleet.cluster.apply(sim_model("a", "--no-such-flag"))
        wait_until(lambda: is_blocked(fleet, "a", "--no-such-flag"), "the roll-out is blocked")
    assert fleet.cluster.replicas()["a/1"]["address"] == before["a/1"]["address"]

"""Nodes that are lost in the middle of a drain, with whatever is on them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.testing.cluster import wait_until
from llmgw_core.testing.four_nodes import FourNodes, four_nodes
from llmgw_core.testing.sim_model import Hold, sim_model

LOST_AFTER_S = 15.0


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourNodes]:
    with four_nodes(tmp_path_factory.mktemp("fleet"), heartbeat_s=1.0, lost_after_s=LOST_AFTER_S) as running:
        yield running


@pytest.fixture(name="fleet")
def _fleet(running: FourNodes) -> Iterator[FourNodes]:
    """All nodes are there and take replicas, and nothing runs."""
    yield running
    running.restore()


def test_a_node_that_dies_in_the_middle_is_followed_by_the_replacement(fleet: FourNodes, tmp_path: Path) -> None:
    loading = Hold(tmp_path / "loading", "loading")
    before = fleet.place(sim_model("a", *loading.flags))
    loading.take()
    (node,) = before["a/1"]["nodes"]
    seen = len(fleet.cluster.events("replacement placed"))
    fleet.drain(node)
    wait_until(lambda: len(fleet.cluster.events("replacement placed")) > seen, "the move has begun")
    fleet.agents[node].signal(signal.SIGSTOP)
    fleet.cluster.wait_for_state(node, "lost")
    loading.release()
    first = before["a/1"]["generation"]
    after = fleet.cluster.wait_for_replica("a/1", above=first)
    assert after["generation"] == first + 1
    fleet.agents[node].signal(signal.SIGCONT)
    fleet.wait_for_drain(node)
    wait_until(lambda: not fleet.cluster.shard_processes(f"a/1#0@{first}"), "the stale one is stopped")


def test_a_target_that_dies_costs_the_original_nothing(fleet: FourNodes, tmp_path: Path) -> None:
    loading = Hold(tmp_path / "loading", "loading")
    before = fleet.place(sim_model("a", *loading.flags))
    loading.take()
    (node,) = before["a/1"]["nodes"]
    seen = len(fleet.cluster.events("replacement placed"))
    with fleet.never_fewer_ready():
        fleet.drain(node)
        (placed,) = wait_until(lambda: fleet.cluster.events("replacement placed")[seen:], "the move has begun")
        fleet.agents[placed["node"]].signal(signal.SIGSTOP)
        fleet.cluster.wait_for_state(placed["node"], "lost")
        loading.release()
        fleet.wait_for_drain(node)
    assert not {node, placed["node"]} & set(fleet.nodes_of("a/1"))
    fleet.agents[placed["node"]].signal(signal.SIGCONT)
    fleet.cluster.wait_for_state(placed["node"], "online")
    tried = f"a/1#0@{before['a/1']['generation'] + 1}"
    wait_until(lambda: not fleet.cluster.shard_processes(tried), "the first replacement is stopped")

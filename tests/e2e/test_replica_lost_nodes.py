"""Nodes fall silent under running replicas: one that is away, and many at once."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.testing.cluster import Cluster, running_cluster, wait_until
from llmgw_core.testing.machine import running_network
from llmgw_core.testing.sim_model import complete, sim_model

PACE = {"heartbeat_s": 1.0, "lost_after_s": 6.0}


@pytest.fixture(name="stack")
def _stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pids(replica: dict[str, Any]) -> list[int]:
    return [shard["pid"] for shard in replica["shards"]]


def test_nodes_that_are_away_lose_their_replicas_and_have_no_second_ones_when_they_are_back(
    tmp_path: Path, stack: ExitStack
) -> None:
    """F06, F37: the network of one is cut, and the agent of another hangs, the one after the other."""
    network = stack.enter_context(running_network(("n1", "n2", "n3", "n4")))
    hub = network.inside("hub")
    with running_cluster(tmp_path, host=network.address, port=7443, outlook=hub, **PACE) as cluster:
        control = cluster.start_control(prefix=hub)
        agents = {name: cluster.start_agent(name, gpus=4, prefix=network.inside(name)) for name in network.nodes}
        wait_until(lambda: len(cluster.nodes(hub)) == 4, "all nodes")
        cluster.offer(sim_model("m", replicas=2))
        cluster.apply(sim_model("m", replicas=2))
        before = ready(cluster, "m/1", "m/2")
        assert [each["nodes"] for each in before] == [["n1"], ["n2"]]
        agents["n2"].signal(signal.SIGSTOP)
        control.wait_for("node suspect node=n2 ")  # its log is quicker to read than a command: it is lost soon
        agents["n2"].signal(signal.SIGCONT)
        cluster.wait_for_state("n2", "online", hub)
        assert pids(cluster.replica("m/2")) == pids(before[1]), "silence is not death"

        network.cut_from_control("n1")
        network.cut_to_control("n1")
        wait_until(lambda: _heard_apart_s(cluster, "n1", "n4") > 1.5 * cluster.lost_after_s, "n1 lost, and not with n2")
        agents["n2"].signal(signal.SIGSTOP)
        after = ready(cluster, "m/1", "m/2", above=1)
        assert sorted(each["nodes"] for each in after) == [["n3"], ["n4"]]
        for old, new in zip(before, after, strict=True):
            _was_lost(old["nodes"][0], new["last_failure"])
            assert Path(f"/proc/{pids(old)[0]}").exists(), "nobody could stop it"
        network.heal("n1")
        agents["n2"].signal(signal.SIGCONT)
        wait_until(lambda: len({each.marker for each in cluster.shard_processes("m/")}) == 2, "the stale ones gone")
        for name in ("n1", "n2"):
            cluster.wait_for_state(name, "online", hub)
        now = [cluster.replica(id) for id in ("m/1", "m/2")]
        assert [(each["state"], each["generation"], pids(each)) for each in now] == [
            ("ready", 2, pids(each)) for each in after
        ]
        cluster.apply(sim_model("m", replicas=4))
        more = ready(cluster, "m/3", "m/4")
        assert [each["nodes"] for each in more] == [["n1"], ["n2"]], "they work again without a restart"
        cluster.apply("")
        cluster.wait_until_gone()


def _heard_apart_s(cluster: Cluster, earlier: str, later: str) -> float:
    nodes = cluster.nodes(cluster.outlook)
    return float(nodes[later]["last_seen"] - nodes[earlier]["last_seen"])


def _was_lost(node: str, failure: dict[str, Any]) -> None:
    assert (failure["kind"], failure["node"]) == ("node lost", node)
    assert re.match(rf"node {node} has not been heard for \d+ s", failure["reason"])


def ready(cluster: Cluster, *ids: str, above: int = 0) -> list[dict[str, Any]]:
    for id in ids:
        cluster.wait_for_replica(id, above=above)
    return [cluster.replica(id) for id in ids]


def test_when_many_nodes_fall_silent_at_once_nothing_moves_and_the_reason_is_shown(tmp_path: Path) -> None:
    """F09."""
    with running_cluster(tmp_path, **PACE) as cluster:
        agents = cluster.start_all("n1", "n2", "n3", "n4")
        models = sim_model("m", replicas=4) + sim_model("g", nodes=2, gpus_per_node=2)
        cluster.offer(models)
        cluster.apply(models, "--wait")
        before = {id: cluster.replica(id) for id in cluster.replicas()}
        assert {id: replica["nodes"] for id, replica in before.items() if replica["model"] == "m"} == {
            f"m/{number}": [f"n{number}"] for number in (1, 2, 3, 4)
        }
        for name in ("n1", "n3"):
            agents[name].kill()
        for name in ("n1", "n3"):
            cluster.wait_for_state(name, "lost")
        (event,) = wait_until(lambda: cluster.events("mass loss"), "the reason")
        assert event["reason"] == "2 of 4 nodes fell silent together (n1, n3): none of them loses its replicas"
        silent = cluster.replicas()
        for id in ("m/1", "m/3"):
            node = before[id]["nodes"][0]
            assert (silent[id]["state"], silent[id]["reason"]) == ("ready", f"as far as known: {node} does not speak")
            assert complete(silent[id]["address"], "m")
        back = [cluster.start_agent(name, gpus=4, fabric="ib-a") for name in ("n1", "n3")]
        for agent in back:
            agent.wait_for("INFO connected ")
        for id, replica in before.items():
            cluster.wait_for_replica(id)
            now = cluster.replica(id)
            assert (now["generation"], pids(now)) == (1, pids(replica))
        assert len(cluster.events("replica placed")) == len(before)
        cluster.apply("")
        cluster.wait_until_gone()

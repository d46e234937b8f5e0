"""Nodes fall silent under running replicas: one that is away, and many at once."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.testing.cluster import Cluster, running_cluster, wait_until
from llmgw_core.testing.machine import running_network
from llmgw_core.testing.sim_model import complete, sim_model

PACE = {"heartbeat_s": 1.0, "lost_after_s": 12.0}


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
        cluster.wait_until_looked(*network.nodes)
        # Each takes a whole node: where one is suspect for a moment, because the machine is busy, it comes elsewhere.
        cluster.offer(whole_nodes(replicas=2))
        cluster.apply(whole_nodes(replicas=2))
        before = ready(cluster, "m/1", "m/2")
        n1, n2 = (each["nodes"][0] for each in before)
        others = {*network.nodes} - {n1, n2}
        agents[n2].signal(signal.SIGSTOP)
        control.wait_for(f"node suspect node={n2} ")  # its log is quicker to read than a command: it is lost soon
        agents[n2].signal(signal.SIGCONT)
        cluster.wait_for_state(n2, "online")
        assert pids(cluster.replica("m/2")) == pids(before[1]), "silence is not death"

        network.cut_from_control(n1)
        network.cut_to_control(n1)
        apart_s = 1.5 * cluster.lost_after_s
        wait_until(
            lambda: _heard_apart_s(cluster, n1, max(others)) > apart_s,
            "one is lost, and not with the other",
            every_s=2.0,
        )
        agents[n2].signal(signal.SIGSTOP)
        after = ready(cluster, "m/1", "m/2", above=1)
        assert {each["nodes"][0] for each in after} == others
        for old, new in zip(before, after, strict=True):
            _was_lost(old["nodes"][0], new["last_failure"])
            assert Path(f"/proc/{pids(old)[0]}").exists(), "nobody could stop it"
        network.heal(n1)
        agents[n2].signal(signal.SIGCONT)
        wait_until(lambda: len({each.marker for each in cluster.shard_processes("m/")}) == 2, "the stale ones gone")
        for name in (n1, n2):
            cluster.wait_for_state(name, "online")
        now = [cluster.replica(id) for id in ("m/1", "m/2")]
        assert [(each["state"], each["generation"], pids(each)) for each in now] == [
            ("ready", 2, pids(each)) for each in after
        ]
        cluster.apply(whole_nodes(replicas=4))
        more = ready(cluster, "m/3", "m/4")
        assert {each["nodes"][0] for each in more} == {n1, n2}, "they work again without a restart"
        cluster.apply("")
        cluster.wait_until_gone()


def whole_nodes(replicas: int) -> str:
    return sim_model("m", replicas=replicas, gpus_per_node=4)


def _heard_apart_s(cluster: Cluster, earlier: str, later: str) -> float:
    nodes = cluster.nodes()
    return float(nodes[later]["last_seen"] - nodes[earlier]["last_seen"])


def _was_lost(node: str, failure: dict[str, Any]) -> None:
    assert (failure["kind"], failure["node"]) == ("node lost", node)
    assert re.match(rf"node {node} has not been heard for \d+ s", failure["reason"])


def ready(cluster: Cluster, *ids: str, above: int = 0) -> list[dict[str, Any]]:
    for id in ids:
        cluster.wait_for_replica(id, above=above)
    return [cluster.replica(id) for id in ids]


def _known_again(cluster: Cluster, id: str) -> dict[str, Any]:
    """A node that is back has said what runs there: before, its replica is ready as far as known."""
    replica = cluster.replica(id)
    return replica if replica["state"] == "ready" and all(pids(replica)) else {}


def test_when_many_nodes_fall_silent_at_once_nothing_moves_and_the_reason_is_shown(tmp_path: Path) -> None:
    """F09."""
    with running_cluster(tmp_path, **PACE) as cluster:
        agents = cluster.start_all("n1", "n2", "n3", "n4")
        models = sim_model("m", replicas=4, gpus_per_node=3) + sim_model("g", nodes=2, gpus_per_node=1)
        cluster.offer(models)
        cluster.apply(models, "--wait")
        before = {id: cluster.replica(id) for id in cluster.replicas()}
        at = {replica["nodes"][0]: id for id, replica in before.items() if replica["model"] == "m"}
        assert sorted(at) == ["n1", "n2", "n3", "n4"]
        for name in ("n1", "n3"):
            agents[name].kill()
        for name in ("n1", "n3"):
            cluster.wait_for_state(name, "lost")
        told = "2 of 4 nodes fell silent together (n1, n3): none of them loses its replicas"
        wait_until(lambda: told in [event["reason"] for event in cluster.events("mass loss")], "the reason")
        silent = cluster.replicas()
        for node in ("n1", "n3"):
            id = at[node]
            assert (silent[id]["state"], silent[id]["reason"]) == ("ready", f"as far as known: {node} does not speak")
            assert complete(silent[id]["address"], "m")
        back = [cluster.start_agent(name, gpus=4, fabric="ib-a") for name in ("n1", "n3")]
        for agent in back:
            agent.wait_for("INFO connected ")
        for id, replica in before.items():
            now = wait_until(partial(_known_again, cluster, id), f"the engines of {id} found again")
            assert (now["state"], now["generation"], pids(now)) == ("ready", 1, pids(replica))
        assert len(cluster.events("replica placed")) == len(before)
        cluster.apply("")
        cluster.wait_until_gone()

"""Work moves without an outage: drains and roll-outs over real agents, with whatever happens in their middle.

A sampler looks at the ready replicas all the time; no model may ever have fewer than at the start of the move.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from llmgw_core.testing.cluster import Cluster, Daemon, running_cluster, wait_until
from llmgw_core.testing.sim_model import asked, sim_model, streamed

NODES = ("n1", "n2", "n3", "n4")
FABRICS = {"n1": "ib-a", "n2": "ib-a", "n3": "ib-b", "n4": "ib-b"}
GPUS = 2
SOAK_S = 0.5


@define(eq=False)
class Fleet:
    cluster: Cluster
    control: Daemon
    agents: dict[str, Daemon] = field(factory=dict)

    def start_control(self) -> None:
        self.control = self.cluster.start_control("--soak", str(SOAK_S))

    def start_agent(self, name: str) -> None:
        self.agents[name] = self.cluster.start_agent(name, gpus=GPUS, fabric=FABRICS[name])

    def apply(self, *models: str) -> dict[str, dict[str, Any]]:
        """All replicas, as soon as they are ready."""
        self.cluster.apply("\n".join(models), "--wait")
        return self.cluster.replicas()

    def drain(self, *words: str) -> None:
        self.cluster.ctl("drain", *words, "--no-wait")

    def drains(self) -> dict[str, dict[str, Any]]:
        return {each["node"]: each for each in json.loads(self.cluster.ctl("drains", "--json"))}

    def wait_for_drain(self, node: str, state: str = "drained") -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            status = self.drains().get(node, {})
            return status if status.get("state") == state else None

        status: dict[str, Any] = wait_until(found, f"{node} {state}", every_s=0.1)
        return status

    def nodes_of(self, id: str) -> list[str]:
        return list(self.cluster.replicas()[id]["nodes"])

    def ready(self) -> Counter[str]:
        return Counter(each["model"] for each in self.cluster.replicas().values() if each["state"] == "ready")

    @contextmanager
    def never_fewer_ready(self) -> Iterator[None]:
        """No model has fewer ready replicas while the block runs than at its start."""
        before, seen, over = self.ready(), [Counter[str]()], threading.Event()
        seen[0] = before

        def sample() -> None:
            while not over.is_set():
                seen.append(self.ready())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield
        finally:
            over.set()
            sampler.join()
        fewest = {model: min(each[model] for each in seen) for model in before}
        assert fewest == dict(before)


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running_cluster(tmp_path_factory.mktemp("fleet"), lost_after_s=8.0) as cluster:
        fleet = Fleet(cluster, cluster.start_control("--soak", str(SOAK_S)))
        for name in NODES:
            fleet.start_agent(name)
        wait_until(lambda: len(cluster.nodes()) == len(NODES), "all nodes")
        yield fleet


@pytest.fixture(name="fleet")
def _fleet(running: Fleet) -> Iterator[Fleet]:
    """All nodes are there and take replicas, and nothing runs."""
    yield running
    if running.control.process.poll() is not None:
        running.start_control()
    for name in NODES:
        running.agents[name].signal(signal.SIGCONT)
        if running.agents[name].process.poll() is not None:
            running.start_agent(name)
        running.cluster.wait_for_state(name, "online")
    for name in running.drains():
        running.cluster.ctl("undrain", name)
    running.cluster.apply("")
    running.cluster.wait_until_gone()


def test_a_drained_node_has_nothing_and_no_model_had_fewer_ready(fleet: Fleet) -> None:
    fleet.apply(sim_model("a", replicas=2), sim_model("b"))
    (node,) = {fleet.nodes_of("a/1")[0]}
    with fleet.never_fewer_ready():
        said = fleet.cluster.ctl("drain", node)
    assert f"{node}: drained" in said
    assert all(node not in each["nodes"] for each in fleet.cluster.replicas().values())
    assert fleet.cluster.nodes()[node]["drain"] == "drained"
    assert len(fleet.cluster.events("node drained")) == 1


def test_a_plan_tells_where_each_would_go_and_does_nothing(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("a"))
    (node,) = before["a/1"]["nodes"]
    (move,) = json.loads(fleet.cluster.ctl("drain", node, "--plan", "--json"))
    assert fleet.cluster.replicas() == before
    assert fleet.drains() == {}
    fleet.drain(node)
    fleet.wait_for_drain(node)
    assert fleet.nodes_of("a/1") == move["target"]


def test_both_replicas_of_a_model_move_one_after_the_other(fleet: Fleet) -> None:
    fleet.apply(sim_model("a", replicas=2))
    nodes = sorted({fleet.nodes_of("a/1")[0], fleet.nodes_of("a/2")[0]})
    with fleet.never_fewer_ready():
        fleet.cluster.ctl("drain", *nodes)
    told = [event for event in fleet.cluster.events() if event["kind"] in ("replacement placed", "replica moved")]
    assert [event["kind"] for event in told[-4:]] == ["replacement placed", "replica moved"] * 2


def test_a_group_moves_as_a_whole_to_another_fabric(fleet: Fleet) -> None:
    fleet.apply(sim_model("group", nodes=2))
    before = fleet.nodes_of("group/1")
    with fleet.never_fewer_ready():
        fleet.cluster.ctl("drain", before[1])
    after = fleet.nodes_of("group/1")
    assert {FABRICS[name] for name in after} | {FABRICS[name] for name in before} == {"ib-a", "ib-b"}
    assert not set(before) & set(after)


def test_without_room_the_original_stays_and_goes_when_there_is_room(fleet: Fleet) -> None:
    fleet.apply(sim_model("big", gpus_per_node=2), sim_model("fill", replicas=3, gpus_per_node=2))
    (node,) = fleet.nodes_of("big/1")
    with fleet.never_fewer_ready():
        fleet.drain(node)
        status = fleet.wait_for_drain(node, "blocked")
        assert "needs 2 free GPUs on one node" in status["left"]["big/1"]
        assert "--allow-stop-first" in status["left"]["big/1"]
    fleet.cluster.ctl("scale", "fill", "2")
    fleet.wait_for_drain(node)
    fleet.cluster.wait_for_replica("big/1")


def test_an_operator_may_allow_an_outage(fleet: Fleet) -> None:
    fleet.apply(sim_model("pair", nodes=2, gpus_per_node=2), sim_model("fill", gpus_per_node=2))
    filled = fleet.nodes_of("fill/1")[0]
    node = fleet.nodes_of("pair/1")[0]
    free = next(name for name in NODES if FABRICS[name] == FABRICS[filled] and name != filled)
    fleet.drain(filled, "--allow-stop-first")
    fleet.wait_for_drain(filled)  # to the free one: there was room
    assert fleet.nodes_of("fill/1") == [free]
    fleet.drain(node)
    assert "pair/1" in fleet.wait_for_drain(node, "blocked")["left"]


def test_an_undrain_calls_the_move_off(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("slow", "--load-time", "3"))
    (node,) = before["slow/1"]["nodes"]
    seen = len(fleet.cluster.events("replacement placed"))
    with fleet.never_fewer_ready():
        fleet.drain(node)
        wait_until(lambda: fleet.cluster.events("replacement placed")[seen:], "the move has begun")
        fleet.cluster.ctl("undrain", node)
        wait_until(lambda: len(fleet.cluster.shard_processes("slow/1#0@")) == 2, "only the original's processes")
    now = fleet.cluster.replicas()["slow/1"]
    assert (now["nodes"], now["address"]) == ([node], before["slow/1"]["address"])


@pytest.mark.parametrize("moment", ["begun", "ready"])
def test_control_plane_and_agents_are_killed_in_the_middle(fleet: Fleet, moment: str) -> None:
    before = fleet.apply(sim_model("a", "--load-time", "1.5"))
    (node,) = before["a/1"]["nodes"]
    kind = {"begun": "replacement placed", "ready": "replacement ready"}[moment]
    seen = len(fleet.cluster.events(kind))
    fleet.drain(node)
    wait_until(lambda: len(fleet.cluster.events(kind)) > seen, kind)
    fleet.control.kill()
    for agent in fleet.agents.values():
        agent.kill()
    fleet.start_control()
    for name in NODES:
        fleet.start_agent(name)
    fleet.wait_for_drain(node)
    after = fleet.cluster.wait_for_replica("a/1")
    assert after["failures"] == 0, str(fleet.cluster.replica("a/1")["first_failure"])
    assert after["generation"] == before["a/1"]["generation"] + 1
    assert node not in after["nodes"]


def test_a_node_that_dies_in_the_middle_is_followed_by_the_replacement(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("a", "--load-time", "4"))
    (node,) = before["a/1"]["nodes"]
    seen = len(fleet.cluster.events("replacement placed"))
    fleet.drain(node)
    wait_until(lambda: len(fleet.cluster.events("replacement placed")) > seen, "the move has begun")
    fleet.agents[node].signal(signal.SIGSTOP)
    first = before["a/1"]["generation"]
    after = fleet.cluster.wait_for_replica("a/1", above=first)
    assert after["generation"] == first + 1
    fleet.agents[node].signal(signal.SIGCONT)
    fleet.wait_for_drain(node)
    assert fleet.cluster.shard_processes(f"a/1#0@{first}") == ()


def test_a_target_that_dies_costs_the_original_nothing(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("a", "--load-time", "6"))
    (node,) = before["a/1"]["nodes"]
    seen = len(fleet.cluster.events("replacement placed"))
    with fleet.never_fewer_ready():
        fleet.drain(node)
        (placed,) = wait_until(lambda: fleet.cluster.events("replacement placed")[seen:], "the move has begun")
        fleet.agents[placed["node"]].signal(signal.SIGSTOP)
        fleet.wait_for_drain(node)
    assert not {node, placed["node"]} & set(fleet.nodes_of("a/1"))
    fleet.agents[placed["node"]].signal(signal.SIGCONT)
    fleet.cluster.wait_for_state(placed["node"], "online")
    tried = f"a/1#0@{before['a/1']['generation'] + 1}"
    wait_until(lambda: not fleet.cluster.shard_processes(tried), "the first replacement is stopped")


def test_a_stream_ends_before_its_original_stops(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("a", "--tokens-per-second", "10"))["a/1"]
    with asked(before["address"], "a", stream=True, max_tokens=40) as answer:
        pieces = streamed(answer)
        next(pieces)
        fleet.drain(before["nodes"][0])
        assert len(list(pieces)) >= 38
    fleet.wait_for_drain(before["nodes"][0])


def test_a_change_goes_through_the_replicas_one_at_a_time_and_back(fleet: Fleet) -> None:
    fleet.apply(sim_model("a", replicas=2))
    with fleet.never_fewer_ready():
        fleet.apply(sim_model("a", "--tokens-per-second", "500", replicas=2))
        wait_until(lambda: rolled_out(fleet, "a"), "the change is through")
        fleet.cluster.ctl("rollback", "a")
        wait_until(lambda: rolled_out(fleet, "a"), "it is back")
    argv = fleet.cluster.replica("a/1")["shards"][0]["argv"]
    assert "--tokens-per-second" not in argv


def rolled_out(fleet: Fleet, model: str) -> bool:
    found = json.loads(fleet.cluster.ctl("rollout", model, "--json"))
    return all(not each["outdated"] and not each["replacement"] for each in found["replicas"])


def test_a_change_that_fails_stops_at_the_first_replacement(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("a", replicas=2))
    seen = len(fleet.cluster.events("replacement failed"))
    bad = sim_model("a", "--fault-crash-while-loading", "0.2", replicas=2)
    with fleet.never_fewer_ready():
        fleet.cluster.apply(bad)
        wait_until(lambda: fleet.cluster.events("replacement failed")[seen:], "the replacement fails")
        said = wait_until(lambda: blocked(fleet, "a"), "the roll-out is blocked")
    assert all("failed" in each for each in said)
    assert len(fleet.cluster.events("replacement failed")[seen:]) == 1
    assert {id: each["address"] for id, each in fleet.cluster.replicas().items()} == {
        id: each["address"] for id, each in before.items()
    }
    fleet.cluster.ctl("rollback", "a")
    wait_until(lambda: rolled_out(fleet, "a"), "all is as before")


def blocked(fleet: Fleet, model: str) -> list[str]:
    found = json.loads(fleet.cluster.ctl("rollout", model, "--json"))
    reasons = [each["blocked"] for each in found["replicas"]]
    return reasons if all(reasons) else []


def test_a_typing_mistake_in_a_profile_costs_nothing(fleet: Fleet) -> None:
    before = fleet.apply(sim_model("a"))
    with fleet.never_fewer_ready():
        fleet.cluster.apply(sim_model("a", "--no-such-flag"))
        (said,) = wait_until(lambda: blocked(fleet, "a"), "the roll-out is blocked")
    assert "--no-such-flag" in said
    assert fleet.cluster.replicas()["a/1"]["address"] == before["a/1"]["address"]


def test_drains_of_all_nodes_but_one_end_blocked_with_reasons(fleet: Fleet) -> None:
    fleet.apply(sim_model("a", replicas=4, gpus_per_node=2))
    with fleet.never_fewer_ready():
        fleet.drain(*NODES[:3])
        for node in NODES[:3]:
            (reason,) = fleet.wait_for_drain(node, "blocked")["left"].values()
            assert "no room for its replacement" in reason


def test_a_drained_node_is_removed_and_forgotten(fleet: Fleet, tmp_path: Path) -> None:
    fleet.apply(sim_model("a"))
    node = fleet.nodes_of("a/1")[0]
    fleet.cluster.ctl("drain", node)
    fleet.agents[node].process.terminate()
    fleet.agents[node].process.wait(20)
    wait_until(lambda: "removed" in try_to_remove(fleet, node), "the node is removed")
    assert fleet.drains() == {}
    assert os.path.exists(fleet.cluster.agent_state(node))


def try_to_remove(fleet: Fleet, node: str) -> str:
    try:
        return fleet.cluster.ctl("nodes", "remove", node)
    except AssertionError as error:
        return str(error) if "connected" not in str(error) else ""

"""Work moves off nodes without an outage: drains over real agents, and who is killed in their middle.

A sampler looks at the ready replicas all the time; no model may ever have fewer than at the start of the move.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.testing.cluster import END_S, wait_until
from llmgw_core.testing.four_nodes import FABRICS, NODES, FourNodes, four_nodes
from llmgw_core.testing.sim_model import Hold, asked, running_requests, sim_model, streamed


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourNodes]:
    with four_nodes(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture(name="fleet")
def _fleet(running: FourNodes) -> Iterator[FourNodes]:
    """All nodes are there and take replicas, and nothing runs."""
    yield running
    running.restore()


def test_a_drained_node_has_nothing_and_no_model_had_fewer_ready(fleet: FourNodes) -> None:
    fleet.place(sim_model("a", replicas=2), sim_model("b"))
    (node,) = {fleet.nodes_of("a/1")[0]}
    with fleet.never_fewer_ready():
        said = fleet.cluster.ctl("drain", node)
    assert f"{node}: drained" in said
    assert all(node not in each["nodes"] for each in fleet.cluster.replicas().values())
    assert fleet.cluster.nodes()[node]["drain"] == "drained"
    assert len(fleet.cluster.events("node drained")) == 1


def test_a_plan_tells_where_each_would_go_and_does_nothing(fleet: FourNodes) -> None:
    before = fleet.place(sim_model("a"))
    (node,) = before["a/1"]["nodes"]
    (move,) = json.loads(fleet.cluster.ctl("drain", node, "--plan", "--json"))
    assert fleet.cluster.replicas() == before
    assert fleet.drains() == {}
    fleet.drain(node)
    fleet.wait_for_drain(node)
    assert fleet.nodes_of("a/1") == move["target"]


def test_both_replicas_of_a_model_move_one_after_the_other(fleet: FourNodes) -> None:
    fleet.place(sim_model("a", replicas=2))
    nodes = sorted({fleet.nodes_of("a/1")[0], fleet.nodes_of("a/2")[0]})
    with fleet.never_fewer_ready():
        fleet.drain(*nodes)
        for node in nodes:
            fleet.wait_for_drain(node)
    told = [event for event in fleet.cluster.events() if event["kind"] in ("replacement placed", "replica moved")]
    assert [event["kind"] for event in told[-4:]] == ["replacement placed", "replica moved"] * 2


def test_a_group_moves_as_a_whole_to_another_fabric(fleet: FourNodes) -> None:
    fleet.place(sim_model("group", nodes=2))
    before = fleet.nodes_of("group/1")
    with fleet.never_fewer_ready():
        fleet.drain(before[1])
        fleet.wait_for_drain(before[1])
    after = fleet.nodes_of("group/1")
    assert {FABRICS[name] for name in after} | {FABRICS[name] for name in before} == {"ib-a", "ib-b"}
    assert not set(before) & set(after)


def test_without_room_the_original_stays_and_goes_when_there_is_room(fleet: FourNodes) -> None:
    fleet.place(sim_model("big", gpus_per_node=2), sim_model("fill", replicas=3, gpus_per_node=2))
    (node,) = fleet.nodes_of("big/1")
    with fleet.never_fewer_ready():
        fleet.drain(node)
        status = fleet.wait_for_drain(node, "blocked")
        assert "needs 2 free GPUs on one node" in status["left"]["big/1"]
        assert "--allow-stop-first" in status["left"]["big/1"]
    fleet.cluster.ctl("scale", "fill", "2")
    fleet.wait_for_drain(node)
    fleet.cluster.wait_for_replica("big/1")


def test_an_operator_may_allow_an_outage(fleet: FourNodes) -> None:
    fleet.place(sim_model("pair", nodes=2, gpus_per_node=2), sim_model("fill", gpus_per_node=2))
    filled = fleet.nodes_of("fill/1")[0]
    node = fleet.nodes_of("pair/1")[0]
    free = next(name for name in NODES if FABRICS[name] == FABRICS[filled] and name != filled)
    fleet.drain(filled, "--allow-stop-first")
    fleet.wait_for_drain(filled)  # to the free one: there was room
    assert fleet.nodes_of("fill/1") == [free]
    fleet.drain(node)
    assert "pair/1" in fleet.wait_for_drain(node, "blocked")["left"]


def test_an_undrain_calls_the_move_off(fleet: FourNodes, tmp_path: Path) -> None:
    loading = Hold(tmp_path / "loading", "loading")
    before = fleet.place(sim_model("slow", *loading.flags))
    loading.take()
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
def test_control_plane_and_agents_are_killed_in_the_middle(fleet: FourNodes, moment: str, tmp_path: Path) -> None:
    """While the replacement loads, or when it is ready and the original has not ended."""
    kind, what = {"begun": ("replacement placed", "loading"), "ready": ("replacement ready", "stop")}[moment]
    hold = Hold(tmp_path / what, what)
    before = fleet.place(sim_model("a", *hold.flags))
    hold.take()
    (node,) = before["a/1"]["nodes"]
    seen = len(fleet.cluster.events(kind))
    fleet.drain(node)
    wait_until(lambda: len(fleet.cluster.events(kind)) > seen, kind)
    fleet.control.kill()
    for agent in fleet.agents.values():
        agent.kill()
    fleet.start_control()
    for name in NODES:
        fleet.start_agent(name)
    for name in NODES:
        fleet.agents[name].wait_for("INFO connected ")
    hold.release()
    fleet.wait_for_drain(node)
    after = fleet.cluster.wait_for_replica("a/1")
    assert after["failures"] == 0, str(fleet.cluster.replica("a/1")["first_failure"])
    assert after["generation"] == before["a/1"]["generation"] + 1
    assert node not in after["nodes"]


def test_a_stream_ends_before_its_original_stops(fleet: FourNodes, tmp_path: Path) -> None:
    tokens = Hold(tmp_path / "tokens", "tokens")
    before = fleet.place(sim_model("a", *tokens.flags))["a/1"]
    tokens.take()
    with asked(before["address"], "a", stream=True, max_tokens=40) as answer:
        wait_until(lambda: running_requests(before["address"]), "the stream runs")
        fleet.drain(before["nodes"][0])
        wait_until(lambda: waits_for_requests(fleet, "a/1"), "the original waits for it", every_s=0.1)
        tokens.release()
        assert len([piece for piece in streamed(answer) if piece]) == 40
    fleet.wait_for_drain(before["nodes"][0])


def waits_for_requests(fleet: FourNodes, id: str) -> bool:
    replica = fleet.cluster.replica(id)
    return any("in flight" in shard["reason"] for shard in (*replica["shards"], *replica["beside"]))


def test_drains_of_all_nodes_but_one_end_blocked_with_reasons(fleet: FourNodes) -> None:
    fleet.place(sim_model("a", replicas=4, gpus_per_node=2))
    with fleet.never_fewer_ready():
        fleet.drain(*NODES[:3])
        for node in NODES[:3]:
            (reason,) = fleet.wait_for_drain(node, "blocked")["left"].values()
            assert "no room for its replacement" in reason


def test_a_drained_node_is_removed_and_forgotten(fleet: FourNodes, tmp_path: Path) -> None:
    fleet.place(sim_model("a"))
    node = fleet.nodes_of("a/1")[0]
    fleet.drain(node)
    fleet.wait_for_drain(node)
    fleet.agents[node].process.terminate()
    fleet.agents[node].process.wait(END_S)
    wait_until(lambda: "removed" in try_to_remove(fleet, node), "the node is removed")
    assert fleet.drains() == {}
    assert os.path.exists(fleet.cluster.agent_state(node))


def try_to_remove(fleet: FourNodes, node: str) -> str:
    try:
        return fleet.cluster.ctl("nodes", "remove", node)
    except AssertionError as error:
        return str(error) if "connected" not in str(error) else ""

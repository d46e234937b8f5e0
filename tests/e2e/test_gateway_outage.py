"""No request fails, and none is cut, whatever an operator does: users ask all the time through two workers.

Each test changes the fleet under them; every answer is looked at to its end.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.demo.users import Unanswered, Users, ask_model
from llmgw_core.testing.cluster import Cluster, Daemon, Gateway, running_cluster, wait_until
from llmgw_core.testing.sim_model import sim_model, streamed

NODES = {"n1": "ib-a", "n2": "ib-a", "n3": "ib-b", "n4": "ib-b"}
SLOW = ("--tokens-per-second", "40")
"""So that an answer lasts a third of a second: there is always one under way."""
DRAIN_S = 60.0


@define(eq=False)
class Fleet:
    cluster: Cluster
    control: Daemon
    gateway: Gateway
    key: str

    def users(self, *models: str) -> Users:
        return Users(self.gateway.address, models, self.key)

    def drain(self, node: str) -> None:
        self.cluster.ctl("drain", node, deadline_s=DRAIN_S)
        self.cluster.ctl("undrain", node)

    def apply(self, *models: str) -> None:
        self.cluster.apply("\n".join(models), "--wait")


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_cluster(tmp_path) as cluster:
        control = cluster.start_control("--soak", "0.5")
        for node, fabric in NODES.items():
            cluster.start_agent(node, gpus=2, fabric=fabric)
        wait_until(lambda: len(cluster.nodes()) == len(NODES), "all nodes")
        yield Fleet(
            cluster,
            control,
            cluster.start_gateway("gw", "--workers", "2"),
            cluster.create_key("users"),
        )
        cluster.apply("")
        # What a killed control plane had begun belongs to no replica any more, and may take longer to stop than those.
        wait_until(lambda: not cluster.replicas() and not cluster.shard_processes(), "all replicas and processes gone")


def judge(users: Users, least: int) -> None:
    assert users.failures == []
    assert users.answered >= least


def wait_for_model(fleet: Fleet, model: str) -> None:
    """Until the gateway leads there."""

    def answers() -> bool:
        try:
            return bool(ask_model(fleet.gateway.address, model, fleet.key))
        except Unanswered:
            return False

    wait_until(answers, f"{model} answers", every_s=0.1)


def small(name: str = "small", *more: str) -> str:
    return sim_model(name, *SLOW, *more, replicas=2, engine_key=True)


def large() -> str:
    return sim_model("large", *SLOW, nodes=2, gpus_per_node=1, tensor_parallel=2, engine_key=True)


def test_every_node_is_drained_in_turn(fleet: Fleet) -> None:
    fleet.apply(small(), large())
    wait_for_model(fleet, "large")
    users = fleet.users("small", "large")
    with users.asking():
        for node in NODES:
            fleet.drain(node)
    judge(users, 20)


def test_a_changed_profile_rolls_through(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    before = {each["generation"] for each in fleet.cluster.replicas().values()}
    users = fleet.users("small")
    with users.asking():
        fleet.apply(small("small", "--load-time", "0.3"))
    judge(users, 5)
    assert min(each["generation"] for each in fleet.cluster.replicas().values()) > max(before)


def test_fewer_replicas_are_wanted(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    users = fleet.users("small")
    with users.asking():
        fleet.cluster.ctl("scale", "small", "1")
        wait_until(lambda: len(fleet.cluster.replicas()) == 1, "one replica", every_s=0.1)
    judge(users, 2)


def test_the_control_plane_is_killed_and_comes_back_in_the_middle_of_a_drain(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    node = next(iter(fleet.cluster.replicas().values()))["nodes"][0]
    users = fleet.users("small")
    with users.asking():
        fleet.cluster.ctl("drain", node, "--no-wait")
        fleet.control.kill()
        answered = users.answered
        wait_until(lambda: users.answered > answered + 8, "requests without a control plane")
        fleet.cluster.start_control("--soak", "0.5")
        fleet.cluster.ctl("drain", node, deadline_s=DRAIN_S)
    judge(users, 10)


def test_a_killed_worker_is_started_again_and_the_other_serves_meanwhile(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    children = Path(f"/proc/{fleet.gateway.daemon.process.pid}/task/{fleet.gateway.daemon.process.pid}/children")
    _, worker, other = map(int, children.read_text().split())
    os.kill(worker, signal.SIGKILL)
    fleet.gateway.daemon.wait_for("ended, and is started again")
    for _ in range(8):
        assert ask_model(fleet.gateway.address, "small", fleet.key)
    assert str(other) in children.read_text().split()
    # A drain waits for what every worker does: the new one too.
    fleet.drain(next(iter(fleet.cluster.replicas().values()))["nodes"][0])


def test_a_gateway_without_its_supervisor_stops(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    fleet.gateway.daemon.kill()

    def refuses() -> bool:
        try:
            ask_model(fleet.gateway.address, "small", fleet.key)
        except Unanswered:
            return True
        return False

    wait_until(refuses, "its children have ended", every_s=0.1)


def test_a_gateway_serves_by_its_last_routes_before_there_is_a_control_plane(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    fleet.control.kill()
    fleet.gateway.daemon.signal(signal.SIGTERM)
    fleet.gateway.daemon.process.wait(10)
    again = fleet.cluster.start_gateway("gw")
    assert ask_model(again.address, "small", fleet.key)
    fleet.cluster.start_control("--soak", "0.5")
    again.daemon.wait_for("connected")


def connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_gateway_that_ends_answers_what_it_has_and_takes_nothing_new(fleet: Fleet, how: signal.Signals) -> None:
    """Of one whose supervisor is killed, the workers do."""
    fleet.apply(small())
    wait_for_model(fleet, "small")
    body = {"model": "small", "max_tokens": 80, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with closing(http.client.HTTPConnection(fleet.gateway.address, timeout=20)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {fleet.key}"})
        pieces = streamed(connection.getresponse())
        next(pieces)
        fleet.gateway.daemon.signal(how)
        wait_until(lambda: not connects(fleet.gateway.address), "connections are refused", 1.0)
        assert len(list(pieces)) >= 79  # and it ends as it should
    fleet.gateway.daemon.process.wait(10)
    assert fleet.gateway.daemon.process.returncode == (0 if how is signal.SIGTERM else -how)


def test_who_waits_is_told_why_nothing_is_ready(fleet: Fleet) -> None:
    fleet.cluster.apply(sim_model("big", gpus_per_node=8) + sim_model("late", "--load-time", "600"))

    def refusal(model: str, words: str) -> str:
        try:
            ask_model(fleet.gateway.address, model, fleet.key)
        except Unanswered as error:
            return str(error) if words in str(error) else ""
        return ""

    unplaced = wait_until(lambda: refusal("big", "unplaced"), "why big is not ready")
    assert "no replica of big is ready: 1 unplaced (" in unplaced
    assert "503" in unplaced
    begun = time.monotonic()
    starting = wait_until(lambda: refusal("late", "starting"), "why late is not ready")
    assert "no replica of late is ready: 1 starting" in starting
    assert time.monotonic() - begun < 20


def test_nobody_waits_for_a_gateway_that_has_said_goodbye(fleet: Fleet) -> None:
    fleet.apply(small())
    wait_for_model(fleet, "small")
    assert [each["name"] for each in json.loads(fleet.cluster.ctl("gateways", "--json"))] == ["gw"]
    fleet.gateway.daemon.signal(signal.SIGTERM)
    fleet.gateway.daemon.process.wait(10)
    assert json.loads(fleet.cluster.ctl("gateways", "--json")) == []


def test_a_gateway_that_is_to_stop_says_so_and_takes_connections_for_a_while(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.start_control()
        gateway = cluster.start_gateway("gw", "--workers", "2", "--no-auth", "--stop-delay", "2")
        wait_until(lambda: health(gateway)[0] == 200, "it has routes")
        gateway.daemon.signal(signal.SIGTERM)
        assert wait_until(lambda: health(gateway)[0] == 503 and health(gateway), "it says so") == (503, "stopping")
        gateway.daemon.process.wait(10)
        assert gateway.daemon.process.returncode == 0


def health(gateway: Gateway) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(gateway.address, timeout=5)) as connection:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, json.load(answer)["status"]

"""A drain waits for gateways over real links: for their tables, for their requests, and for silence not for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field

from llmgw_core.model.route import Lingering, RouteTable, Target
from llmgw_core.testing.cluster import Cluster, Daemon, running_cluster, wait_until
from llmgw_core.testing.light_gateway import LightGateway, running_gateway
from llmgw_core.testing.sim_model import sim_model

LOST_AFTER_S = 15.0
"""So long the silence of a gateway is borne, too."""
NOT_WAITED_FOR = "gateway not waited for"


@define(eq=False)
class Fleet:
    cluster: Cluster
    control: Daemon
    gateway: LightGateway
    agents: dict[str, Daemon]
    seen: int = field(init=False)
    """Events of before."""

    def __attrs_post_init__(self) -> None:
        self.seen = len(self.cluster.events())

    @property
    def node(self) -> str:
        (node,) = self.cluster.replicas()["m/1"]["nodes"]
        return str(node)

    def drain(self) -> int:
        """The generation of the original."""
        generation = int(self.cluster.replica("m/1")["generation"])
        self.cluster.ctl("drain", self.node, "--no-wait")
        return generation

    def news(self, kind: str) -> list[str]:
        return [each["reason"] for each in self.cluster.events()[self.seen :] if kind in each["kind"]]

    def wait_for(self, kind: str) -> str:
        return str(wait_until(lambda: self.news(kind), kind, every_s=0.1)[0])

    def order(self, *kinds: str) -> list[str]:
        """In which order the news of these kinds came."""
        told = (each["kind"] for each in self.cluster.events()[self.seen :])
        return [kind for kind in told if kind in kinds]

    def runs(self, generation: int) -> bool:
        return bool(self.cluster.shard_processes(f"m/1#0@{generation}"))


@contextmanager
def a_fleet(directory: Path, **given: float) -> Iterator[Fleet]:
    with running_cluster(directory, **given) as cluster:
        control = cluster.start_control("--soak", "0.3")
        agents = {name: cluster.start_agent(name, gpus=1) for name in ("n1", "n2")}
        cluster.apply(sim_model("m"), "--wait")
        with running_gateway(cluster) as gateway:
            gateway.wait_for_targets("m/1")
            yield Fleet(cluster, control, gateway, agents)


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Fleet]:
    with a_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(name="impatient")
def _impatient(tmp_path: Path) -> Iterator[Fleet]:
    """Silence is borne for a while only; what happens meanwhile is told by the order of events."""
    with a_fleet(tmp_path, heartbeat_s=1.0, lost_after_s=LOST_AFTER_S) as fleet:
        yield fleet


def test_an_original_goes_only_when_the_gateway_knows_its_replacement_and_has_no_request_left_there(
    fleet: Fleet,
) -> None:
    first = fleet.cluster.replica("m/1")["generation"]
    fleet.gateway.takes = False
    fleet.gateway.lingering = (Lingering("m/1", first, 2),)
    fleet.drain()
    fleet.wait_for("replacement ready")
    wait_until(lambda: len(targets_in(fleet.gateway.table)) == 2, "a table with the replacement")
    assert not fleet.news("original stopping")
    fleet.gateway.takes = True
    fleet.wait_for("original stopping")
    (left,) = fleet.gateway.wait_for_targets("m/1", 1)
    assert left.generation == first + 1
    told = fleet.cluster.ctl("drains")
    assert "requests there end first" in told
    assert fleet.runs(first), "requests are left there"
    fleet.gateway.lingering = ()
    wait_until(lambda: not fleet.runs(first), "the original stops")
    fleet.wait_for("node drained")
    assert not fleet.news("not waited for")


def test_a_ready_replica_counts_as_routed_once_the_gateway_has_taken_it(fleet: Fleet) -> None:
    """What `apply --wait` ends with: a user who asks then is sent there."""
    fleet.gateway.takes = False
    fleet.cluster.apply(sim_model("m", replicas=2))

    def seen(routed: bool) -> bool:
        second = fleet.cluster.replicas().get("m/2")
        return second is not None and second["state"] == "ready" and second["routed"] is routed

    wait_until(lambda: seen(routed=False), "m/2 ready, and the gateway not told")
    assert fleet.cluster.replicas()["m/1"]["routed"]
    assert not fleet.gateway.targets("m/2")
    fleet.gateway.takes = True
    wait_until(lambda: seen(routed=True), "m/2 routed")
    assert fleet.gateway.targets("m/2")


def test_a_gateway_that_dies_is_waited_for_no_longer_than_silence_is_borne_and_is_named(impatient: Fleet) -> None:
    fleet = impatient
    fleet.gateway.takes = False  # it is gone before it has taken anything new
    first = fleet.drain()
    fleet.gateway.kill()
    said = fleet.wait_for(NOT_WAITED_FOR)
    assert f"edge/{fleet.gateway.instance[:8]} has not been heard" in said
    fleet.wait_for("node drained")
    assert not fleet.runs(first)
    kinds = ["replacement ready", "original stopping", NOT_WAITED_FOR, "replica moved"]
    assert fleet.order(*kinds) == kinds


def test_a_control_plane_that_starts_anew_waits_for_the_gateways_of_before(impatient: Fleet) -> None:
    fleet = impatient
    first = fleet.cluster.replica("m/1")["generation"]
    fleet.gateway.lingering = (Lingering("m/1", first, 1),)
    fleet.drain()
    fleet.wait_for("original stopping")
    fleet.gateway.kill()
    fleet.control.kill()
    fleet.cluster.start_control("--soak", "0.3")
    fleet.wait_for("replica moved")
    assert fleet.order(NOT_WAITED_FOR, "replica moved") == [NOT_WAITED_FOR, "replica moved"], "none knew what it does"
    wait_until(lambda: not fleet.runs(first), "the original stops")


def test_a_control_plane_that_starts_anew_leads_to_what_was_ready_before_its_agents_are_back(fleet: Fleet) -> None:
    before = fleet.gateway.targets("m/1")
    for agent in fleet.agents.values():
        agent.signal(signal.SIGSTOP)
    fleet.gateway.kill()
    fleet.control.kill()
    fleet.cluster.start_control("--soak", "0.3")
    with running_gateway(fleet.cluster, "other") as gateway:
        assert gateway.tables
        assert all(targets_in(table) == before for table in gateway.tables)
        for agent in fleet.agents.values():
            agent.signal(signal.SIGCONT)
        for name in fleet.agents:
            fleet.cluster.wait_for_state(name, "online")
        assert fleet.cluster.wait_for_replica("m/1")["address"] == f"{before[0].address}:{before[0].port}"
        assert all(targets_in(table) == before for table in gateway.tables)


def targets_in(table: RouteTable | None) -> list[Target]:
    return [target for model in table.models for target in model.targets] if table is not None else []


def test_an_engine_that_dies_waits_for_nobody(fleet: Fleet) -> None:
    fleet.gateway.takes = False
    before = fleet.cluster.replica("m/1")
    (shard,) = before["shards"]
    os.kill(shard["pid"], signal.SIGKILL)
    fleet.wait_for("replica failed")
    wait_until(lambda: not fleet.runs(before["generation"]), "its processes are gone")
    wait_until(lambda: _is_behind(fleet), "a table without it that the gateway has not taken")


def _is_behind(fleet: Fleet) -> bool:
    (seen,) = fleet.cluster.ask("gateways")
    return bool(seen["version"] < seen["current"])

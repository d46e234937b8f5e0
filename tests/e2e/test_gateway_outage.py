"""No request fails, and none is cut, whatever an operator does: users ask all the time through two workers.

Each test changes the fleet under them; every answer is looked at to its end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field

from llmgw_core.demo.users import Unanswered, Users, ask_model
from llmgw_core.testing.cluster import END_S, Gateway, wait_until
from llmgw_core.testing.four_nodes import NODES, FourNodes, four_nodes
from llmgw_core.testing.sim_model import sim_model

SLOW = ("--tokens-per-second", "40")
"""So that an answer lasts a third of a second: there is always one under way."""


@define(eq=False)
class Fleet:
    nodes: FourNodes
    key: str
    gateway: Gateway = field(init=False)
    gateways: int = 0
    """How many have been started, one after the other."""

    def start_gateway(self) -> None:
        self.gateways += 1
        self.gateway = self.nodes.cluster.start_gateway(f"gw{self.gateways}", "--workers", "2")

    @contextmanager
    def asking(self, *models: str, least: int) -> Iterator[Users]:
        """Users of these models, all the time; so many answers at least, until the last of them nothing else."""
        users = Users(self.gateway.address, models, self.key)
        with users.asking():
            wait_until(lambda: users.failures or users.answered >= 2 * len(models), "users are served")
            yield users
            wait_until(lambda: users.failures or users.answered >= least, f"{least} answers")
        assert users.failures == []

    def drain(self, node: str) -> None:
        self.nodes.drain(node)
        self.nodes.wait_for_drain(node)
        self.nodes.cluster.ask("undrain", nodes=[node])

    def apply(self, *models: str) -> None:
        """All replicas are ready, and the gateway leads to them."""
        self.nodes.apply(*models)
        self.wait_until_routed()

    def wait_until_routed(self) -> None:
        wait_until(lambda: all(each["routed"] for each in self.nodes.cluster.replicas().values()), "all are routed")

    def a_node(self) -> str:
        """On which a replica is."""
        return str(next(iter(self.nodes.cluster.replicas().values()))["nodes"][0])


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with four_nodes(tmp_path_factory.mktemp("fleet")) as nodes:
        yield Fleet(nodes, nodes.cluster.create_key("users"))


@pytest.fixture(name="fleet")
def _fleet(running: Fleet) -> Iterator[Fleet]:
    if not running.gateways or running.gateway.daemon.process.poll() is not None:
        running.start_gateway()
    yield running
    running.nodes.restore()


def small(name: str = "small", *more: str) -> str:
    return sim_model(name, *SLOW, *more, replicas=2, engine_key=True)


def large() -> str:
    return sim_model("large", *SLOW, nodes=2, gpus_per_node=1, tensor_parallel=2, engine_key=True)


def test_every_node_is_drained_in_turn(fleet: Fleet) -> None:
    fleet.nodes.place(small(), large())
    fleet.wait_until_routed()
    with fleet.asking("small", "large", least=20):
        for node in NODES:
            fleet.drain(node)


def test_a_changed_profile_rolls_through(fleet: Fleet) -> None:
    fleet.apply(small())
    before = {id: each["generation"] for id, each in fleet.nodes.cluster.replicas().items()}
    with fleet.asking("small", least=5):
        fleet.apply(small("small", "--load-time", "0.3"))
    after = {id: each["generation"] for id, each in fleet.nodes.cluster.replicas().items()}
    assert all(after[id] > generation for id, generation in before.items())


def test_fewer_replicas_are_wanted(fleet: Fleet) -> None:
    fleet.apply(small())
    with fleet.asking("small", least=4):
        fleet.nodes.cluster.ctl("scale", "small", "1")
        wait_until(lambda: len(fleet.nodes.cluster.replicas()) == 1, "one replica", every_s=0.1)


def test_the_control_plane_is_killed_and_comes_back_in_the_middle_of_a_drain(fleet: Fleet) -> None:
    fleet.apply(small())
    node = fleet.a_node()
    with fleet.asking("small", least=10) as users:
        fleet.nodes.drain(node)
        fleet.nodes.control.kill()
        answered = users.answered
        wait_until(lambda: users.failures or users.answered > answered + 8, "requests without a control plane")
        fleet.nodes.start_control()
        fleet.nodes.wait_for_drain(node)


def test_a_killed_worker_is_started_again_and_the_other_serves_meanwhile(fleet: Fleet) -> None:
    fleet.apply(small())
    children = Path(f"/proc/{fleet.gateway.daemon.process.pid}/task/{fleet.gateway.daemon.process.pid}/children")
    _, worker, other = map(int, children.read_text().split())
    os.kill(worker, signal.SIGKILL)
    fleet.gateway.daemon.wait_for("ended, and is started again")
    for _ in range(8):
        assert ask_model(fleet.gateway.address, "small", fleet.key)
    assert str(other) in children.read_text().split()
    # A drain waits for what every worker does: the new one too.
    fleet.drain(fleet.a_node())


def test_who_waits_is_told_why_nothing_is_ready(fleet: Fleet) -> None:
    fleet.nodes.cluster.apply(sim_model("big", gpus_per_node=8) + sim_model("late", "--load-time", "600"))

    def refusal(model: str, words: str) -> str:
        try:
            ask_model(fleet.gateway.address, model, fleet.key)
        except Unanswered as error:
            return str(error) if words in str(error) else ""
        return ""

    unplaced = wait_until(lambda: refusal("big", "unplaced"), "why big is not ready")
    assert "no replica of big is ready: 1 unplaced (" in unplaced
    assert "503" in unplaced
    starting = wait_until(lambda: refusal("late", "starting"), "why late is not ready")  # long before it has loaded
    assert "no replica of late is ready: 1 starting" in starting


def test_nobody_waits_for_a_gateway_that_has_said_goodbye(fleet: Fleet) -> None:
    fleet.apply(small())
    assert [each["name"] for each in fleet.nodes.cluster.ask("gateways")] == [f"gw{fleet.gateways}"]
    fleet.gateway.daemon.signal(signal.SIGTERM)
    fleet.gateway.daemon.process.wait(END_S)
    wait_until(lambda: fleet.nodes.cluster.ask("gateways") == [], "it is known no more")

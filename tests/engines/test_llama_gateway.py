"""Real llama.cpp replicas behind a real gateway: users stream all the time, and notice nothing of what is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.demo.users import Unanswered, Users, ask_model
from llmgw_core.testing.cluster import Cluster, Gateway, running_cluster, wait_until

CATALOG = """\
[models.tiny]
source = "{gguf}"
replicas = 2
profiles = ["tiny"]

[profiles.tiny]
engine = "llamacpp"
context_length = {context}
extra_args = ["--threads", "1"]
"""
NODES = ("gpu-01", "gpu-02")
READY_S = 180.0
MANY = 24


@define(eq=False)
class Fleet:
    cluster: Cluster
    gateway: Gateway
    key: str
    gguf: Path

    def apply(self, context: int) -> None:
        self.cluster.apply(CATALOG.format(gguf=self.gguf, context=context), "--wait")

    def users(self, *models: str) -> Users:
        return Users(self.gateway.address, models, self.key)


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path, llama_programs: Mapping[str, str], tiny_gguf: Path) -> Iterator[Fleet]:
    with running_cluster(tmp_path) as cluster:
        cluster.start_control("--soak", "0.5")
        words = [word for name, path in llama_programs.items() for word in ("--engine", f"{name}={path}")]
        for node in NODES:
            cluster.start_agent(node, *words)
        wait_until(lambda: len(cluster.nodes()) == len(NODES), "two nodes")
        fleet = Fleet(cluster, cluster.start_gateway("gw"), cluster.create_key("users"), tiny_gguf)
        fleet.apply(512)
        wait_until(lambda: answers(fleet), "the gateway leads to it", READY_S)
        yield fleet
        cluster.apply("")
        wait_until(lambda: not cluster.replicas(), "every engine gone", READY_S)


def answers(fleet: Fleet) -> bool:
    try:
        ask_model(fleet.gateway.address, "tiny", fleet.key)
    except Unanswered:
        return False
    return True


def test_streams_are_whole_while_nodes_drain_and_a_profile_rolls(fleet: Fleet) -> None:
    users = fleet.users("tiny")
    with users.asking():
        for node in NODES:
            fleet.cluster.ctl("drain", node, deadline_s=READY_S)
            fleet.cluster.ctl("undrain", node)
        fleet.apply(640)
        wait_until(lambda: users.failures or users.answered >= 20, "answers")
    assert users.failures == []


def test_more_users_than_it_has_threads_are_all_answered_soon(fleet: Fleet) -> None:
    """A thread of llama-server's stays with a connection that is kept; those that wait must not wait for its end."""
    users = fleet.users(*["tiny"] * (MANY // 2))
    with users.asking():
        wait_until(lambda: users.failures or users.answered > 3 * MANY, "each of them was answered thrice", READY_S)
    assert users.failures == []

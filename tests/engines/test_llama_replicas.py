"""Real llama.cpp replicas on real agents: on one node, and over two with an RPC worker."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.testing.cluster import Cluster, Daemon, running_cluster, wait_until
from llmgw_core.testing.light_gateway import running_gateway

CATALOG = """\
[models.tiny]
source = "{gguf}"
profiles = ["tiny"]

[profiles.tiny]
engine = "llamacpp"
engine_key = false
nodes = {nodes}
context_length = 512
extra_args = ["--threads", "1"]
"""
READY_S = 180.0


@pytest.fixture(name="agents")
def _agents() -> dict[str, Daemon]:
    """By node."""
    return {}


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, llama_programs: Mapping[str, str], agents: dict[str, Daemon]) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as cluster:
        cluster.start_control()
        words = [word for name, path in llama_programs.items() for word in ("--engine", f"{name}={path}")]
        for name in ("gpu-01", "gpu-02"):
            agents[name] = cluster.start_agent(name, *words, fabric="ib-a")
        wait_until(lambda: len(cluster.nodes()) == 2, "two nodes")
        yield cluster
        cluster.apply("")
        wait_until(lambda: not cluster.replicas(), "every engine gone", READY_S)


def complete(address: str, key: str = "") -> dict[str, Any]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    body = {"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": "Who are you?"}]}
    asked = urllib.request.Request(f"http://{address}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=READY_S) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found


def test_a_replica_on_one_node_serves(cluster: Cluster, tiny_gguf: Path) -> None:
    cluster.apply(CATALOG.format(gguf=tiny_gguf, nodes=1))
    replica = cluster.wait_for_replica("tiny/1")
    assert complete(replica["address"])["usage"]["completion_tokens"] == 8
    wait_until(lambda: "model loaded" in cluster.ctl("logs", "tiny/1", "--lines", "1000"), "its log")


def test_a_replica_over_two_nodes_serves_and_is_rebuilt_when_its_worker_dies(cluster: Cluster, tiny_gguf: Path) -> None:
    cluster.apply(CATALOG.format(gguf=tiny_gguf, nodes=2))
    cluster.wait_for_replica("tiny/1")
    first = cluster.replica("tiny/1")
    head, worker = first["shards"]
    assert f"127.0.0.1:{worker['port']}" in head["argv"][head["argv"].index("--rpc") + 1]
    assert complete(first["address"])["usage"]["completion_tokens"] == 8
    os.kill(worker["pid"], signal.SIGKILL)
    again = cluster.wait_for_replica("tiny/1", above=first["generation"])
    assert complete(again["address"])["usage"]["completion_tokens"] == 8
    failure = cluster.replica("tiny/1")["last_failure"]
    assert (failure["rank"], failure["exit"]) == (1, "signal 9 (SIGKILL)")
    assert failure["node"] == worker["node"]


def test_one_with_a_key_answers_nobody_else_and_goes_on_when_its_agent_starts_anew(
    cluster: Cluster, agents: dict[str, Daemon], tiny_gguf: Path, llama_programs: Mapping[str, str]
) -> None:
    cluster.apply(CATALOG.format(gguf=tiny_gguf, nodes=1).replace("engine_key = false\n", ""))
    with running_gateway(cluster) as gateway:
        before = cluster.wait_for_replica("tiny/1")
        (target,) = gateway.wait_for_targets("tiny/1")
        assert complete(before["address"], target.key)["usage"]["completion_tokens"] == 8
        with pytest.raises(urllib.error.HTTPError, match="401"):
            complete(before["address"])
        (node,) = before["nodes"]
        agents[node].kill()
        words = [word for name, path in llama_programs.items() for word in ("--engine", f"{name}={path}")]
        cluster.start_agent(node, *words, fabric="ib-a").wait_for("INFO connected ")
        wait_until(lambda: cluster.replica("tiny/1")["shards"][0]["pid"], "the engine found again")
        after = cluster.wait_for_replica("tiny/1")
        assert after["generation"] == before["generation"]
        assert cluster.events("replica failed") == []

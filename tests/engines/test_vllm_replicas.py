"""Real vLLM replicas on real agents, on the CPU: on one node, and over two without Ray. See `make engines-vllm`."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent.processes import lives, read_processes
from llmgw_core.plan.shard_tree import Process
from llmgw_core.testing.cluster import Cluster, running_cluster, wait_until

# What only a CPU needs stands in the profile: memory for the cache in GiB, threads that are bound to no core.
CATALOG = """\
[models.tiny]
source = "{model}"
profiles = ["tiny"]

[profiles.tiny]
engine = "vllm"
engine_key = false
nodes = {nodes}
tensor_parallel = {nodes}
context_length = 256
max_sequences = 4
dtype = "bfloat16"
extra_args = ["--enforce-eager"]

[profiles.tiny.env]
VLLM_CPU_KVCACHE_SPACE = "1"
VLLM_CPU_OMP_THREADS_BIND = "nobind"
OMP_NUM_THREADS = "1"
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
"""
KNOWN_S, READY_S, GONE_S = 600.0, 900.0, 240.0
"""Until both agents know their engine (its help takes minutes), a replica is ready, every engine is gone."""
TITLE = "VLLM::"
"""vLLM's own processes are called so: the engine core, and the workers of several."""


@pytest.fixture(scope="module", name="agents")
def _agents(tmp_path_factory: pytest.TempPathFactory, vllm: str) -> Iterator[Cluster]:
    """Of two agents; a busy machine is not a lost node."""
    with running_cluster(tmp_path_factory.mktemp("vllm"), lost_after_s=120.0) as cluster:
        cluster.start_control()
        for name in ("gpu-01", "gpu-02"):
            cluster.start_agent(name, "--engine", f"vllm={vllm}", fabric="ib-a")
        told("two agents are started")
        wait_until(lambda: len(engines(cluster)) == 2, "two nodes that know their vLLM", KNOWN_S, 1.0)
        told(f"both know their vLLM: {engines(cluster)}")
        yield cluster


@pytest.fixture(name="cluster")
def _cluster(agents: Cluster) -> Iterator[Cluster]:
    """With nothing of another test's in it."""
    yield agents
    agents.apply("")
    wait_until(lambda: not agents.replicas(), "every engine gone", GONE_S)
    told("every engine is gone")


def engines(cluster: Cluster) -> list[tuple[str, str]]:
    """The version and the outcome of each node's vLLM, once it is checked."""
    facts = [node["facts"] or {} for node in cluster.nodes().values()]
    found = [engine for each in facts for engine in each.get("engines", ()) if engine["engine"] == "vllm"]
    return [(each["version"], each["outcome"]) for each in found if each["version"] and each["outcome"] != "unchecked"]


def told(what: str) -> None:
    """For people who watch with `pytest -s`: these take minutes."""
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


def complete(address: str) -> dict[str, Any]:
    body = {"model": "tiny", "max_tokens": 8, "ignore_eos": True, "messages": [{"role": "user", "content": "Hello"}]}
    asked = urllib.request.Request(
        f"http://{address}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=READY_S) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found


def family(front: int) -> dict[int, Process]:
    """A process and all that descends from it, as they are now."""
    table = read_processes("")
    found = {front: table[front]}
    while more := {pid: each for pid, each in table.items() if each.parent in found and pid not in found}:
        found |= more
    return found


def wait_for_another(cluster: Cluster, above: int, before: Mapping[int, Process]) -> dict[str, Any]:
    """The rebuilt replica when it is ready; nothing of the old one is left when an engine of the new one is there."""

    def engine_started() -> dict[str, Any] | None:
        replica = cluster.replica("tiny/1")
        begun = any(shard.get("pid") for shard in replica.get("shards", ()))
        return replica if replica["generation"] > above and begun else None

    wait_until(engine_started, "an engine of another generation", READY_S, 0.1)
    assert [str(each) for each in before.values() if lives(each.id)] == []
    told("nothing of the old generation is left, and an engine of the next one is started")
    return cluster.wait_for_replica("tiny/1", above=above, deadline_s=READY_S)


def test_one_node_serves_and_is_rebuilt_when_its_engine_core_or_its_front_process_dies(
    cluster: Cluster, tiny_llama: Path
) -> None:
    cluster.apply(CATALOG.format(model=tiny_llama, nodes=1))
    replica = cluster.wait_for_replica("tiny/1", deadline_s=READY_S)
    told("ready on one node")
    said = "Application startup complete"
    wait_until(lambda: said in cluster.ctl("logs", "tiny/1", "--lines", "1000"), "its log")
    for name in (TITLE, "vllm"):
        assert complete(replica["address"])["usage"]["completion_tokens"] == 8
        now = cluster.replica("tiny/1")
        before = family(now["shards"][0]["pid"])
        victim = next(each for each in before.values() if each.name.startswith(name))
        told(f"{victim} of {', '.join(map(str, before.values()))} is killed")
        os.kill(victim.pid, signal.SIGKILL)
        replica = wait_for_another(cluster, now["generation"], before)
        failure = cluster.replica("tiny/1")["last_failure"]
        told(f"ready again; {failure['reason']}; {failure['exit']}")
    assert failure["exit"] == "signal 9 (SIGKILL)"
    assert complete(replica["address"])["usage"]["completion_tokens"] == 8


def test_two_nodes_serve_and_are_rebuilt_when_their_worker_dies(cluster: Cluster, tiny_llama: Path) -> None:
    cluster.apply(CATALOG.format(model=tiny_llama, nodes=2))
    cluster.wait_for_replica("tiny/1", deadline_s=READY_S)
    told("ready over two nodes")
    first = cluster.replica("tiny/1")
    head, worker = first["shards"]
    assert head["node"] != worker["node"]
    assert "--headless" in worker["argv"]
    assert complete(first["address"])["usage"]["completion_tokens"] == 8
    before = family(head["pid"]) | family(worker["pid"])
    told(f"pid {worker['pid']} of {', '.join(map(str, before.values()))} is killed")
    os.kill(worker["pid"], signal.SIGKILL)
    again = wait_for_another(cluster, first["generation"], before)
    failure = cluster.replica("tiny/1")["last_failure"]
    told(f"ready again; {failure['reason']}; {failure['exit']}")
    assert complete(again["address"])["usage"]["completion_tokens"] == 8
    assert (failure["rank"], failure["exit"]) == (1, "signal 9 (SIGKILL)")
    assert failure["node"] == worker["node"]

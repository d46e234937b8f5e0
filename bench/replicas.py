"""`make bench`: how long replicas take to be ready, without what their engine takes, on this machine.

Real agents, each a process, real sim engines, a real control plane. What the engines themselves take is measured beside
it in the same run: as many of them, started at once by nobody but this script. Times are those of the control plane's
events. A figure over its limit is marked, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from bench.figures import Figures
from bench.gateway_targets import pss_bytes

from llmgw_core.plan.restart import FIRST_S
from llmgw_core.testing.cluster import OUR_PATH, Cluster, running_cluster, wait_until
from llmgw_core.testing.sim_model import sim_model

GPUS = 4
DEADLINE_S = 300.0
KILLS = 3
POLL_S = 1.0
"""Looking costs the machine something too; what is measured are the times of events."""

HEALTH = {"probe_every_s": 2.0, "misses": 3}
"""As by default."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=200)
    given = parser.parse_args()
    figures = Figures()
    bare_s = time_bare_engines(given.replicas)
    figures.show(f"{given.replicas} engines started at once, bare", bare_s, "s")
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Path(directory), heartbeat_s=5, lost_after_s=60) as cluster,
    ):
        start_fleet(cluster, given.agents)
        ready_s = time_apply(cluster, given.replicas)
        figures.show(f"{given.replicas} replicas over {given.agents} agents, apply to ready", ready_s, "s")
        figures.show("  the same, to the bare engines", ready_s / bare_s, "times")
        figures.show("memory of a reaper", reaper_mb(cluster), "MB", "7, at most 12", 12)
        time_kills(cluster, figures)
        cluster.apply("")
        wait_until(lambda: not cluster.replicas(), "every engine gone", DEADLINE_S)
    return 1 if figures.over else 0


def time_bare_engines(count: int) -> float:
    """Seconds from the first start to the last answer."""
    ports = free_ports(count)
    begun = time.monotonic()
    engines = [start_engine(port) for port in ports]
    try:
        for port in ports:
            wait_until(partial(answers, port), f"the engine at {port}", DEADLINE_S)
        return time.monotonic() - begun
    finally:
        for engine in engines:
            engine.kill()
            engine.wait()


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def start_engine(port: int) -> subprocess.Popen[bytes]:
    command = ["llmgw-sim", "--model", "bare", "--port", str(port)]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env={**os.environ, "PATH": OUR_PATH})


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start_fleet(cluster: Cluster, agents: int) -> None:
    cluster.start_control()
    for number in range(agents):
        cluster.start_agent(f"node-{number:02}", gpus=GPUS, fabric="ib-a")

    def complete() -> bool:
        nodes = cluster.nodes().values()
        return sum(has_sim(node) for node in nodes) == agents

    wait_until(complete, f"{agents} agents with their engines", DEADLINE_S, POLL_S)


def has_sim(node: dict[str, Any]) -> bool:
    engines = (node["facts"] or {}).get("engines", ())
    return any(each["engine"] == "sim" and each.get("outcome") == "accepted" for each in engines)


def time_apply(cluster: Cluster, replicas: int) -> float:
    cluster.apply(sim_model("single", replicas=replicas, health=HEALTH))
    wait_until(lambda: ready_count(cluster) == replicas, f"{replicas} replicas ready", DEADLINE_S, POLL_S)
    (applied,) = cluster.events("catalog applied")
    return float(max(event["at"] for event in cluster.events("replica ready")) - applied["at"])


def ready_count(cluster: Cluster) -> int:
    """Of all replicas that are there; 0 while some of an earlier catalog are."""
    replicas = json.loads(cluster.ctl("replicas", "--json", deadline_s=DEADLINE_S))
    models = {each["model"] for each in replicas}
    return sum(each["state"] == "ready" for each in replicas) if len(models) == 1 else 0


def reaper_mb(cluster: Cluster) -> float:
    """The median; a reaper is the parent of what it started."""
    pids = [shard["pid"] for id in cluster.replicas() for shard in cluster.replica(id)["shards"]]
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return statistics.median(pss_bytes(int(parent)) for _, parent, *_ in stats) / 1e6


def time_kills(cluster: Cluster, figures: Figures) -> None:
    """Of a worker of two, one after the other; each is the first failure of its replica."""
    cluster.apply(sim_model("pair", replicas=KILLS, nodes=2, health=HEALTH))
    wait_until(lambda: ready_count(cluster) == KILLS, "the pairs are ready", DEADLINE_S, POLL_S)
    took = [time_kill(cluster, id) for id in sorted(cluster.replicas())]
    over = statistics.median(took) - FIRST_S
    figures.show("a killed worker to ready again, less the back-off", over, "s", "goal 2", limit=2.0)


def time_kill(cluster: Cluster, id: str) -> float:
    replica = cluster.replica(id)
    killed = time.time()  # noqa: TID251 - beside the events, which are by this clock
    os.kill(replica["shards"][1]["pid"], signal.SIGKILL)
    cluster.wait_for_replica(id, above=replica["generation"])
    ready = [event for event in cluster.events("replica ready") if event["reason"].startswith(f"{id},")]
    return float(ready[-1]["at"]) - killed


if __name__ == "__main__":
    sys.exit(main())

"""Agents on bad machines: files that block, programs that print without end, settings that mean nothing."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.model.identity import Role
from llmgw_core.testing.cluster import END_S, LLMGW, Cluster, Daemon, running_cluster, wait_until
from llmgw_core.testing.light_agent import issue


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as made:
        yield made


def start(cluster: Cluster, settings: str, *words: str) -> Daemon:
    issue(cluster.authority, cluster.pki, Role.NODE, "gpu1")
    file = cluster.directory / "agent.toml"
    file.write_text(settings)
    flags = ("--node", "gpu1", "--server", str(cluster.server), "--identity", str(cluster.pki / "gpu1"))
    state = ("--state", str(cluster.directory / "agent-gpu1"))
    return cluster._start("gpu1", [LLMGW, "agent", "--config", str(file), *flags, *state, *words], None)


def test_an_agent_whose_infiniband_blocks_connects_says_so_and_stops(cluster: Cluster) -> None:
    port = cluster.directory / "ib" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    os.mkfifo(port / "state")
    cluster.start_control()
    agent = start(cluster, "", "--ib-root", str(cluster.directory / "ib"), "--fabric", "ib-a", "--nvidia-smi", "/none")
    agent.wait_for("INFO connected ")
    wait_until(lambda: "a file of it blocks" in json.dumps(cluster.nodes()["gpu1"]), "the trouble is told")
    agent.signal(signal.SIGTERM)
    assert agent.process.wait(END_S) == 0


def test_rows_without_end_and_words_without_meaning_stop_no_beat(cluster: Cluster) -> None:
    smi = cluster.directory / "nvidia-smi"
    rows = cluster.directory / "rows"
    rows.write_text(
        "".join(f"{number}, GPU-{number:08x}, 00:0{number}, 1, 1, 1, 1, 1, N/A, A\n" for number in range(30_000))
    )
    smi.write_text(f"#!/bin/sh\nexec cat {rows}\n")
    smi.chmod(0o755)
    cluster.start_control()
    agent = start(cluster, '[engines]\nvlm = "/opt/vllm"\n', "--nvidia-smi", str(smi), "--ib-root", "/none")
    agent.wait_for("INFO connected ")
    assert "no loaded plugin has a program 'vlm'" in agent.wait_for("something is to be mended")
    gpus = wait_until(lambda: cluster.facts_of("gpu1").get("gpus", {}).get("gpus"), "GPUs")
    assert len(gpus) == 256
    node = cluster.nodes()["gpu1"]
    assert any("'vlm'" in trouble for trouble in node["troubles"])
    assert not agent.lines("not connected")


def test_an_open_key_is_said_at_the_start(cluster: Cluster) -> None:
    issue(cluster.authority, cluster.pki, Role.NODE, "gpu1")
    (cluster.pki / "gpu1.key").chmod(0o644)
    said = cluster.start_agent("gpu1").wait_for("something is to be mended")
    assert "open to others (mode 0644)" in said

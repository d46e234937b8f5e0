"""Days on which replicas meet bad machines: a full disk, an upgraded engine, one that has forgotten."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.testing.cluster import Cluster, running_cluster, wait_until
from llmgw_core.testing.machine import fill, small_disk
from llmgw_core.testing.running_node import SIM
from llmgw_core.testing.sim_model import complete, sim_model


@pytest.fixture(name="stack")
def _stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pids(replica: dict[str, Any]) -> list[int]:
    return [shard["pid"] for shard in replica["shards"]]


# A full disk, and another engine.


def test_a_full_disk_stops_no_engine_and_fails_the_next_launch_with_its_reason(
    tmp_path: Path, stack: ExitStack
) -> None:
    disk = stack.enter_context(small_disk(tmp_path / "disk", "8m"))
    with running_cluster(tmp_path / "cluster") as cluster:
        cluster.agent_state("n1").symlink_to(disk)
        cluster.start_all("n1")
        cluster.apply(sim_model("m"))
        before = cluster.wait_for_replica("m/1")
        fill(disk / "filler")
        for _ in range(20):
            assert complete(before["address"], "m")
        cluster.apply(sim_model("m", replicas=2))
        failed = cluster.wait_for_replica("m/2", "failed")
        assert "No space left on device" in failed["reason"]
        assert "again in" in failed["reason"], "it is the disk's fault, and not the command's"
        assert cluster.replica("m/1")["generation"] == before["generation"]
        (disk / "filler").unlink()
        _ask_again(cluster, "m")
        cluster.apply("")
        cluster.wait_until_gone()


def _ask_again(cluster: Cluster, model: str) -> None:
    """For the second replica, without waiting until it is tried again."""
    cluster.ctl("scale", model, "1")
    wait_until(lambda: f"{model}/2" not in cluster.replicas(), "the second one forgotten")
    cluster.ctl("scale", model, "2")
    cluster.wait_for_replica(f"{model}/2")


WRAPPER = """\
#!/bin/sh
case "$*" in *--help*) {sim} --help | sed {edit}; exit;; esac
exec {sim} "$@"
"""


def test_an_engine_that_loses_a_flag_goes_on_where_it_runs_and_is_refused_where_it_would_start(
    tmp_path: Path,
) -> None:
    program = tmp_path / "sim"

    def install(edit: str) -> None:
        new = program.with_suffix(".new")
        new.write_text(WRAPPER.format(sim=SIM, edit=edit))
        new.chmod(0o755)
        new.replace(program)

    install("s/nothing/nothing/")
    engine = ("--engine", f"llmgw-sim={program}")
    with running_cluster(tmp_path / "cluster") as cluster:
        agents = cluster.start_all("n1", words=engine)
        cluster.apply(sim_model("m", "--load-time", "0.1"))
        cluster.wait_for_replica("m/1")
        before = cluster.replica("m/1")
        install("s/--load-time/--loading-takes/g")
        cluster.apply(sim_model("m", "--load-time", "0.1", replicas=2))
        refused = wait_until(lambda: "--load-time" in cluster.replicas().get("m/2", {}).get("reason", ""), "a reason")
        assert refused
        now = cluster.wait_for_replica("m/1")
        assert pids(cluster.replica("m/1")) == pids(before)
        assert complete(now["address"], "m")
        assert "--load-time" in cluster.ctl("explain", "m")
        failure = wait_until(lambda: cluster.replica("m/2")["last_failure"], "its failure is kept")
        assert failure["kind"] == "bad arguments"
        assert "--load-time" in failure["reason"]
        install("s/nothing/nothing/")
        agents["n1"].kill()  # or it looks at its engines within a minute
        cluster.start_agent("n1", *engine, gpus=4, fabric="ib-a")
        _ask_again(cluster, "m")
        assert pids(cluster.replica("m/1")) == pids(before)
        cluster.apply("")
        cluster.wait_until_gone()


# What one of them has forgotten.


def test_a_control_plane_from_a_backup_goes_above_what_its_nodes_have_seen(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        control = cluster.start_control()
        cluster.start_agent("n1", gpus=2)
        wait_until(lambda: cluster.nodes(), "the node")
        cluster.apply(sim_model("m", replicas=0))
        backup = tmp_path / "backup.db"
        cluster.ctl("backup", str(backup))
        for _ in range(2):
            cluster.ctl("scale", "m", "1")
            latest = cluster.wait_for_replica("m/1")
            cluster.ctl("scale", "m", "0")
            wait_until(lambda: not cluster.replicas(), "it is gone")
        assert latest["generation"] == 2
        control.kill()
        for file in cluster.state.glob("control.db*"):
            file.unlink()
        backup.rename(cluster.state / "control.db")
        cluster.start_control()
        cluster.wait_for_state("n1", "online")
        cluster.ctl("scale", "m", "1")
        assert cluster.wait_for_replica("m/1")["generation"] == 3
        (told,) = cluster.events("replica stopping")
        assert told["reason"] == "m/1: a node reports its generation 2, which is newer"
        cluster.apply("")
        cluster.wait_until_gone()


SLOW_HELP = """\
#!/bin/sh
case "$*" in *--help*) while [ -e {hold} ]; do sleep 0.05; done;; esac
exec {sim} "$@"
"""


def test_an_agent_that_dies_before_it_hears_that_it_is_to_run_has_its_prepared_shard(tmp_path: Path) -> None:
    hold, program = tmp_path / "hold", tmp_path / "sim"
    with running_cluster(tmp_path / "cluster") as cluster:
        program.write_text(SLOW_HELP.format(hold=hold, sim=SIM))
        program.chmod(0o755)
        cluster.start_control()
        n1 = cluster.start_agent("n1", gpus=1, fabric="ib-a")
        cluster.start_agent("n2", "--engine", f"llmgw-sim={program}", gpus=1, fabric="ib-a")
        wait_until(lambda: len(cluster.nodes()) == 2, "both nodes")
        cluster.apply(sim_model("warm", nodes=2))  # both answer offers
        cluster.wait_for_replica("warm/1")
        hold.touch()
        program.write_text(program.read_text() + "# another file\n")  # so that it is looked at anew
        cluster.apply(sim_model("m", nodes=2))
        phases = ["prepared", "preparing"]
        wait_until(lambda: _phases(cluster, "m/1") == phases, "one prepared, one not", every_s=0.1)
        n1.signal(signal.SIGSTOP)
        hold.unlink()
        wait_until(lambda: cluster.replica("m/1")["shards"][1]["pid"], "the worker told to run", every_s=0.1)
        n1.kill()
        cluster.start_agent("n1", gpus=1, fabric="ib-a")
        assert cluster.wait_for_replica("m/1")["generation"] == 1
        cluster.apply("")
        cluster.wait_until_gone()


def _phases(cluster: Cluster, id: str) -> list[str]:
    replica = cluster.replica(id) if id in cluster.replicas() else {"shards": []}
    return [shard["phase"] for shard in replica["shards"]]

"""Sidecars: in order, ready before the engine, and failing the shard by their names."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import trio

from llmgw_core.model.catalog import Sidecar
from llmgw_core.model.launch import Launch
from llmgw_core.model.shard import ShardPhase
from llmgw_core.testing.running_node import DEADLINE_S, SIM, RunningNode, a_launch, marked_processes, running_node
from llmgw_core.wire.message import ReadLog

FAILED, READY = ShardPhase.FAILED, ShardPhase.READY
SERVER = (sys.executable, "-u", "-m", "http.server", "{port}", "--bind", "127.0.0.1")


def script(path: Path, does: str) -> str:
    path.write_text(f'#!/bin/sh\ncase "$*" in *--help*|*--version*) exec {SIM} "$@";; esac\n{does}\n')
    path.chmod(0o755)
    return str(path)


async def log_with(node: RunningNode, launch: Launch, *texts: str) -> str:
    """What an engine and its sidecars print is there when their reaper has read it."""
    log = ""
    with trio.fail_after(DEADLINE_S):
        while not all(text in log for text in texts):
            await trio.sleep(0.01)
            log = (await node.runtime.read_log(ReadLog(1, launch.replica, 0))).text
    return log


async def test_they_start_in_order_with_ports_that_the_engine_is_told(tmp_path: Path) -> None:
    sidecars = {
        "first": Sidecar(
            command=("sh", "-c", "echo up; touch {directory}/first; exec sleep 60"), ready_file="{directory}/first"
        ),
        "web": Sidecar(command=SERVER, env={"MINE": "{port}"}, ready_path="/"),
        "plain": Sidecar(command=SERVER),
    }
    launch = a_launch("--context-length", "{web.port}", env={"PLAIN": "at {plain.port}"}, sidecars=sidecars)
    sim = script(tmp_path / "sim", f'echo "PLAIN=$PLAIN"; exec {SIM} "$@"')
    async with running_node(tmp_path / "agent", sim=sim) as node:
        status = await node.ready(launch)
        ports = node.runtime.shards.node.lent_ports
        assert len(ports) == 2
        assert int(status.argv[-1]) in ports
        (plain,) = ports - {int(status.argv[-1])}
        log = await log_with(node, launch, f"PLAIN=at {plain}\n", "[first] up\n", "[web] ")
        order = [log.index(f"llmgw: {name} started") for name in ("first", "web", "plain", "engine")]
        assert order == sorted(order)
        await node.stop(launch)
        assert marked_processes(tmp_path / "agent") == ()
        assert not ports
        log = (await node.runtime.read_log(ReadLog(2, launch.replica, 0))).text
        assert log.index("llmgw: engine ended") < min(log.index(f"llmgw: {name} ended") for name in sidecars)


async def test_one_that_ends_before_it_is_ready_fails_the_shard_by_its_name(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo no licence >&2; exit 3")
    launch = a_launch(sidecars={"broken": Sidecar(command=command, ready_file="{directory}/never")})
    async with running_node(tmp_path) as node:
        node.run(launch)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.reason == "sidecar broken ended before it was ready: exit code 3"
        assert status.failure.log_tail == "no licence"
        assert status.pid == 0


async def test_one_that_is_not_ready_in_its_time_fails_the_shard_by_its_name(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo waiting; exec sleep 60")
    # Long enough for it to get so far as to print.
    slow = Sidecar(command=command, ready_file="{directory}/never", ready_within_s=6.0)
    launch = a_launch(sidecars={"slow": slow})
    async with running_node(tmp_path) as node:
        node.run(launch)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.reason == "sidecar slow was not ready within 6 s"
        assert status.failure.log_tail == "waiting"
        assert marked_processes(tmp_path) == ()


async def test_one_that_cannot_be_started_fails_the_shard_by_its_name(tmp_path: Path) -> None:
    launch = a_launch(sidecars={"absent": Sidecar(command=("/none/such", "{port}"))})
    async with running_node(tmp_path) as node:
        node.run(launch)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.reason == ("sidecar absent could not be started: /none/such: No such file or directory")


async def test_one_that_is_killed_later_takes_the_shard_down(tmp_path: Path) -> None:
    launch = a_launch(sidecars={"web": Sidecar(command=SERVER, ready_path="/")})
    async with running_node(tmp_path) as node:
        await node.ready(launch)
        web = node.runtime.shards._attempts[launch.replica, 0, 1].family.kin.fronts["web"]
        os.kill(web.pid, signal.SIGKILL)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.reason.startswith("sidecar web: it ended by itself with signal 9 (SIGKILL)")
        assert marked_processes(tmp_path) == ()

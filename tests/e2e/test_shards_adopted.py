"""Engines outlive the agent: what the next one finds, and what was killed in between, each in each phase."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from attrs import define, evolve

from llmgw_core.agent import family
from llmgw_core.agent.processes import AGENT_VARIABLE, SHARD_VARIABLE, lives
from llmgw_core.agent.surroundings import find_strays, held_gpus
from llmgw_core.model.catalog import Sidecar
from llmgw_core.model.launch import Launch, Stage
from llmgw_core.model.shard import ShardPhase
from llmgw_core.testing.running_node import (
    DEADLINE_S,
    RunningNode,
    a_launch,
    marked_processes,
    running_node,
    wait_until,
)
from llmgw_core.testing.sim_model import Hold
from llmgw_core.wire.message import ReadLog

FAILED, PREPARED, READY = ShardPhase.FAILED, ShardPhase.PREPARED, ShardPhase.READY
STARTING, STOPPING = ShardPhase.STARTING, ShardPhase.STOPPING


def reaper_of(node: RunningNode, launch: Launch) -> int:
    reaper = node.runtime.shards._attempts[launch.replica, 0, launch.generation].family.kin.reaper
    assert reaper is not None
    return reaper.pid


async def test_a_ready_engine_goes_on_and_is_watched_again(tmp_path: Path) -> None:
    """F22."""
    launch = a_launch()
    async with running_node(tmp_path, leave=True) as node:
        before = await node.ready(launch)
    async with running_node(tmp_path) as node:
        assert node.status(launch) == before
        os.kill(before.pid, signal.SIGKILL)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.exit == "signal 9 (SIGKILL)"
        assert "ready" in status.failure.log_tail


async def test_one_that_failed_while_nobody_looked_is_told_with_its_exit(tmp_path: Path) -> None:
    loading = Hold(tmp_path / "loading", "loading")
    loading.take()
    launch = a_launch(*loading.flags, "--fault-exit-zero", "0.2")
    async with running_node(tmp_path / "agent", leave=True) as node:
        node.run(launch)
        await node.wait(launch, STARTING)
        pid = await wait_until(lambda: (status := node.status(launch)) and status.pid, "an engine")
    loading.release()
    await wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end")
    async with running_node(tmp_path / "agent", leave=True) as node:
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.exit == "exit code 0"
    async with running_node(tmp_path / "agent") as node:
        assert node.status(launch) == status
        await node.stop(launch)


async def test_what_was_prepared_is_prepared_again(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path, leave=True) as node:
        node.run(launch, stage=Stage.PREPARE)
        await node.wait(launch, PREPARED)
    async with running_node(tmp_path) as node:
        await node.wait(launch, PREPARED)
        await node.ready(launch)


async def test_a_stop_that_had_begun_goes_on(tmp_path: Path) -> None:
    stop = Hold(tmp_path / "stop", "stop")
    launch = a_launch(*stop.flags)
    async with running_node(tmp_path, leave=True) as node:
        await node.ready(launch)
        stop.take()
        node.ask_to_stop(launch)
        await wait_until(lambda: "SIGTERM" in node.reason(launch), "a signal")
    stop.release()
    async with running_node(tmp_path) as node:
        await wait_until(lambda: not node.runtime.statuses(), "the shard gone")
        assert marked_processes(tmp_path) == ()
        assert not any(status.failure for statuses in node.seen for status in statuses)


async def test_a_start_that_had_not_come_to_the_engine_begins_anew(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    waits = f"while [ -e {held} ]; do sleep 0.05; done; touch {{directory}}/up; exec sleep 60"
    sidecar = Sidecar(command=("sh", "-c", waits), ready_file="{directory}/up")
    launch = a_launch(sidecars={"waits": sidecar})
    async with running_node(tmp_path, leave=True) as node:
        node.run(launch)
        await wait_until(lambda: len(marked_processes(tmp_path)) >= 2, "a sidecar")
        before = {each.id for each in marked_processes(tmp_path)}
    held.unlink()
    async with running_node(tmp_path) as node:
        await node.wait(launch, READY)
        assert not before & {each.id for each in marked_processes(tmp_path)}


async def test_a_launch_that_is_renewed_while_its_start_begins_anew_stays_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "SIDECAR_GRACE_S", 0.5)
    held = tmp_path / "held"
    held.touch()
    waits = f"trap '' TERM; [ -e {held} ] || touch {{directory}}/up; while :; do sleep 0.1; done"
    launch = a_launch(sidecars={"waits": Sidecar(command=("sh", "-c", waits), ready_file="{directory}/up")})
    profile = launch.offer.profile
    patient = evolve(profile, health=evolve(profile.health, in_flight_s=profile.health.in_flight_s + 1))
    renewed = evolve(launch, offer=evolve(launch.offer, profile=patient))
    async with running_node(tmp_path, leave=True) as node:
        node.run(launch)
        await wait_until(lambda: len(marked_processes(tmp_path)) >= 2, "a sidecar")
    held.unlink()
    async with running_node(tmp_path) as node:
        await wait_until(lambda: "asked to end" in node.reason(launch), "the old sidecar is being ended")
        node.run(renewed)
        await node.wait(launch, READY)
        (attempt,) = node.runtime.shards._attempts.values()
        assert attempt.kept.order.launch == renewed


@pytest.mark.parametrize("phase", [STARTING, READY, STOPPING])
async def test_a_killed_reaper_fails_its_shard_and_leaves_nothing(tmp_path: Path, phase: ShardPhase) -> None:
    loading = ("--load-time", "30") if phase is STARTING else ()
    launch = a_launch(*loading, "--fault-slow-stop", "30", "--fault-orphan", str(tmp_path / "held"))
    async with running_node(tmp_path / "agent") as node:
        node.run(launch)
        await node.wait(launch, *({phase} - {STOPPING} or {READY}))
        await wait_until(lambda: (status := node.status(launch)) and status.pid, "an engine")
        if phase is STOPPING:
            node.ask_to_stop(launch)
        os.kill(reaper_of(node, launch), signal.SIGKILL)
        if phase is STOPPING:
            await wait_until(lambda: not node.runtime.statuses(), "the shard gone")
        else:
            status = await node.wait(launch, FAILED)
            assert status.failure is not None
            assert status.failure.reason == "its reaper was killed"
        assert marked_processes(tmp_path / "agent") == ()


@pytest.mark.parametrize("victim", ["engine", "web"])
@pytest.mark.parametrize("phase", [STARTING, READY, STOPPING])
async def test_a_killed_front_process_or_sidecar(tmp_path: Path, phase: ShardPhase, victim: str) -> None:
    hold = Hold(tmp_path / "held", "loading" if phase is STARTING else "stop")
    hold.take()
    web = Sidecar(command=(sys.executable, "-m", "http.server", "{port}"), ready_path="/")
    launch = a_launch(*hold.flags, sidecars={"web": web})
    async with running_node(tmp_path) as node:
        node.run(launch)
        await node.wait(launch, *({phase} - {STOPPING} or {READY}))
        await wait_until(lambda: (status := node.status(launch)) and status.pid, "an engine")
        if phase is STOPPING:  # what dies before it was asked to has failed
            node.ask_to_stop(launch)
            await wait_until(lambda: "SIGTERM was sent" in node.reason(launch), "it is asked")
        os.kill(node.runtime.shards._attempts[launch.replica, 0, 1].family.kin.fronts[victim].pid, signal.SIGKILL)
        hold.release()
        if phase is STOPPING:
            await wait_until(lambda: not node.runtime.statuses(), "the shard gone")
            assert not any(status.failure for statuses in node.seen for status in statuses)
        else:
            status = await node.wait(launch, FAILED)
            assert status.failure is not None
            assert status.failure.exit == "signal 9 (SIGKILL)"
        assert marked_processes(tmp_path) == ()


async def test_a_reaper_that_was_killed_while_no_agent_ran_fails_its_shard(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path, leave=True) as node:
        await node.ready(launch)
        os.kill(reaper_of(node, launch), signal.SIGKILL)
    await wait_until(lambda: len(marked_processes(tmp_path)) == 1, "the reaper's end")
    async with running_node(tmp_path) as node:
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.reason == "its reaper was killed"
        assert marked_processes(tmp_path) == ()


async def test_after_the_machines_restart_nothing_is_looked_for(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path, leave=True) as node:
        await node.ready(launch)
        path = node.runtime.shards._attempts[launch.replica, 0, 1].directory / "shard.json"
        await wait_until(lambda: json.loads(path.read_text())["shard"]["phase"] == "ready", "it kept")
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "shard": {**kept["shard"], "boot_id": "another"}}))
    async with running_node(tmp_path) as node:
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.reason == "the machine was restarted"


async def test_a_damaged_file_stops_nobody_and_its_processes_are_told(tmp_path: Path) -> None:
    torn, whole = a_launch(model="torn"), a_launch(model="whole")
    async with running_node(tmp_path, leave=True) as node:
        await node.ready(torn)
        before = await node.ready(whole)
        path = node.runtime.shards._attempts[torn.replica, 0, 1].directory / "shard.json"
    path.write_text(path.read_text()[:100])
    async with running_node(tmp_path) as node:
        assert node.runtime.statuses() == (before,)
        shards = node.runtime.shards
        table = await shards.node.processes()
        strays = find_strays(table, shards.own_processes(table), shards.markers())
        assert list(strays) == ["torn/1#0@1"]
        assert held_gpus(strays["torn/1#0@1"]) == ("GPU-0",)
        assert any(each.marker == "torn/1#0@1" for each in marked_processes(tmp_path))


async def test_another_agents_shards_are_no_business_of_this_one(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path / "a") as one, running_node(tmp_path / "b") as other:
        await one.ready(launch)
        table = await other.runtime.shards.node.processes()
        assert find_strays(table, other.runtime.shards.own_processes(table), other.runtime.shards.markers()) == {}
        again = evolve(launch, places=(evolve(launch.places[0], port=a_launch().places[0].port),))
        await other.ready(again)
        await other.stop(again)
        assert one.status(launch) is not None
        assert marked_processes(tmp_path / "a")


_AGENT = """
import os, signal, sys, trio
from pathlib import Path
from llmgw_core.model.launch import Stage
from llmgw_core.testing.running_node import a_launch, running_node

async def main():
    launch = a_launch(*sys.argv[3:], ports=[int(sys.argv[2])])
    async with running_node(Path(sys.argv[1])) as node:
        node.run(launch)
        with trio.open_signal_receiver(signal.SIGUSR1) as stops:
            node.nursery.start_soon(tell, node)
            async for _ in stops:
                node.ask_to_stop(launch)

async def tell(node):
    said = None
    while True:
        said = await node.runtime.wait_other_than(said)
        for each in said:
            print(each.phase.value, each.reason, flush=True)

trio.run(main)
"""


@define
class _Agent:
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, words: list[str]) -> _Agent:
        return cls(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))

    def wait_for(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"it ended without {text!r}")


@pytest.fixture
def agents() -> Iterator[list[_Agent]]:
    started: list[_Agent] = []
    yield started
    for agent in started:
        agent.process.kill()
        agent.process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("phase", ["starting", "ready", "stopping"])
async def test_an_agent_that_is_killed_is_followed_by_one_that_goes_on(
    tmp_path: Path, phase: str, agents: list[_Agent]
) -> None:
    hold = Hold(tmp_path / "held", "stop" if phase == "stopping" else "loading")
    launch = a_launch(*hold.flags)
    port = launch.places[0].port
    words = [sys.executable, "-c", _AGENT, str(tmp_path), str(port), *launch.offer.profile.extra_args]
    if phase != "ready":
        hold.take()
    agent = _Agent.start(words)
    agents.append(agent)
    with trio.fail_after(2 * DEADLINE_S):
        await trio.to_thread.run_sync(agent.wait_for, "starting its engine has" if phase == "starting" else "ready")
        if phase == "stopping":
            agent.process.send_signal(signal.SIGUSR1)
            await trio.to_thread.run_sync(agent.wait_for, "stopping SIGTERM")
        agent.process.kill()
        agent.process.wait(DEADLINE_S)
    running = {each.id for each in marked_processes(tmp_path)}
    assert len(running) == 2
    hold.release()
    async with running_node(tmp_path) as node:
        if phase == "stopping":
            await wait_until(lambda: not node.runtime.statuses(), "the shard gone")
        else:
            (status,) = node.runtime.statuses()
            mine = evolve(launch, places=launch.places)
            await node.wait(mine, READY)
            assert all(map(lives, running))
            log = await node.runtime.read_log(ReadLog(1, status.replica, 0))
            assert log.text.count("engine started") == 1
            await node.stop(mine)
        assert marked_processes(tmp_path) == ()


def test_the_marks_are_what_the_documents_say() -> None:
    assert (SHARD_VARIABLE, AGENT_VARIABLE) == ("LLMGW_SHARD", "LLMGW_AGENT")

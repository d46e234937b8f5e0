"""The days on which machines fail: real processes, real sockets, a real disk, and namespaces where this is root.

Silence is measured in seconds here, by the control plane's own `--heartbeat` and `--lost-after`.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import evolve, frozen

from llmgw_core.net.link import LinkClosed
from llmgw_core.testing.cluster import DEADLINE_S, Cluster, running_cluster, wait_until
from llmgw_core.testing.light_agent import LightAgent
from llmgw_core.testing.machine import Network, fill, running_network, small_disk

HOUR_S = 3600
DRIPS = 100


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as made:
        yield made


def check_store(cluster: Cluster) -> None:
    with closing(sqlite3.connect(cluster.state / "control.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def stored_report(cluster: Cluster, name: str) -> int:
    with closing(sqlite3.connect(cluster.state / "control.db")) as database:
        (number,) = database.execute("SELECT report_number FROM node WHERE name = ?", (name,)).fetchone()
        return int(number)


def reporters(cluster: Cluster) -> set[str]:
    """The nodes that have looked at their machines, and have told."""
    return {event["node"] for event in cluster.events("node reported")}


async def test_a_killed_control_plane_loses_nothing_and_everybody_comes_back(cluster: Cluster) -> None:
    """F07, F35."""
    control = cluster.start_control()
    gpu1, gpu2 = cluster.start_agent("gpu1"), cluster.start_agent("gpu2")
    light = cluster.light_agent(1, "light")
    gpu1.wait_for("INFO connected ")
    gpu2.wait_for("INFO connected ")
    wait_until(lambda: reporters(cluster) == {"gpu1", "gpu2"}, "both have reported")
    async with light.talk() as link:
        await light.report(link, evolve(light.facts, disk_free_mib=1024))
    assert "revoked" in cluster.ctl("cert", "revoke", "gpu2")
    gpu2.wait_for("is revoked")
    before = cluster.events()

    control.kill()
    check_store(cluster)
    assert stored_report(cluster, "light") == light.acknowledged == 2

    control = cluster.start_control()
    gpu1.wait_for("INFO connected ", times=2)
    control.wait_for("refused node=gpu2 .*is revoked")
    async with light.talk() as link:
        assert light.acknowledged == 2
        assert await light.report(link, evolve(light.facts, disk_free_mib=2048)) == 3
    after = cluster.events()
    assert after[: len(before)] == before
    assert len({event["id"] for event in after}) == len(after)
    reported = [event["node"] for event in after if event["kind"] == "node reported"]
    assert sorted(reported) == ["gpu1", "gpu2", "light"]
    connected = [event["node"] for event in after if event["kind"] == "node connected"]
    assert connected.count("gpu1") == 2
    assert connected.count("gpu2") == 1
    assert sorted(cluster.nodes()) == ["gpu1", "gpu2", "light"]


async def test_a_report_that_died_with_the_control_plane_is_said_again_and_stored_once(cluster: Cluster) -> None:
    control = cluster.start_control()
    light = cluster.light_agent(1, "light")
    async with light.talk() as link:
        control.signal(signal.SIGSTOP)
        changed = evolve(light.facts, disk_free_mib=1024)
        await link.say(light.end.report(changed))
        control.kill()
        with pytest.raises(LinkClosed):
            await light.beat(link)
    assert light.acknowledged == 1
    cluster.start_control()
    for _ in range(2):
        async with light.talk():
            assert light.acknowledged == 2
    assert stored_report(cluster, "light") == 2
    assert [event["node"] for event in cluster.events("node reported")] == ["light"]


async def test_two_hundred_agents_come_back_at_once_and_an_operator_is_answered(cluster: Cluster) -> None:
    cluster.heartbeat_s, cluster.lost_after_s = 5.0, 60.0
    cluster.start_control()
    agents = [cluster.light_agent(number, f"node-{number}") for number in range(200)]
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            back = _Back(len(agents), cluster.heartbeat_s)
            for agent in agents:
                nursery.start_soon(back.stay, agent)
            with trio.fail_after(DEADLINE_S):
                while not back.all.is_set():
                    await trio.to_thread.run_sync(partial(cluster.ctl, "nodes"))
            await trio.to_thread.run_sync(wait_until, partial(all_online, cluster, len(agents)), "all of them online")
            nursery.cancel_scope.cancel()


def all_online(cluster: Cluster, many: int) -> bool:
    return [node["state"] for node in cluster.nodes().values()] == ["online"] * many


class _Back:
    """Who is connected, and stays heard as agents do: however long the last one takes, the first is no suspect."""

    def __init__(self, wanted: int, heartbeat_s: float) -> None:
        self.missing = wanted
        self.heartbeat_s = heartbeat_s
        self.all = trio.Event()

    async def stay(self, agent: LightAgent) -> None:
        async with agent.talk() as link:
            self.missing -= 1
            if not self.missing:
                self.all.set()
            while True:
                await trio.sleep(self.heartbeat_s)
                await agent.beat(link)


async def test_slow_and_idle_callers_keep_no_agent_out(cluster: Cluster) -> None:
    control = cluster.start_control(prefix=("prlimit", "--nofile=400:"))
    light = cluster.light_agent(1, "light")
    async with trio.open_nursery() as nursery:
        idle = [await trio.open_tcp_stream(cluster.host, cluster.port) for _ in range(500)]
        for _ in range(DRIPS):
            await nursery.start(drip, cluster)
        nursery.start_soon(keep_calling, cluster, idle)
        with trio.fail_after(DEADLINE_S):
            async with light.talk() as link:
                await light.beat(link)
                assert (await trio.to_thread.run_sync(cluster.nodes))["light"]["facts"]
        assert len(control.lines("handshake too slow")) < len(idle) + DRIPS, "while others were still there"
        nursery.cancel_scope.cancel()
    for stream in idle:
        await trio.aclose_forcefully(stream)


async def keep_calling(cluster: Cluster, idle: list[trio.SocketStream]) -> None:
    """One more that says nothing, again and again: some are there however long the others take to be let in."""
    while True:
        await trio.sleep(0.5)
        idle.append(await trio.open_tcp_stream(cluster.host, cluster.port))


async def drip(cluster: Cluster, task_status: trio.TaskStatus[None]) -> None:
    """A handshake, byte by byte, until it is turned away as too slow."""
    hello = bytes([0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + bytes(500)
    stream = await trio.open_tcp_stream(cluster.host, cluster.port)
    try:
        await stream.send_all(hello[:1])
        task_status.started()
        with suppress(trio.BrokenResourceError):
            for index in range(1, len(hello)):
                await trio.sleep(0.1)
                await stream.send_all(hello[index : index + 1])
    finally:
        await trio.aclose_forcefully(stream)


async def test_nobody_is_silent_because_the_control_plane_slept(tmp_path: Path) -> None:
    """F09."""
    with running_cluster(tmp_path, heartbeat_s=1.0, lost_after_s=6.0) as cluster:
        control = cluster.start_control()
        gpu1 = cluster.start_agent("gpu1")
        gpu1.wait_for("INFO connected ")
        light = cluster.light_agent(1, "light")
        async with light.talk() as link, trio.open_nursery() as nursery:
            nursery.start_soon(keep_beating, light, link)
            for stopped_s in (3.0, 8.0):  # more than suspect, more than lost
                slept = len(control.lines("control plane slept"))
                control.signal(signal.SIGSTOP)
                await trio.sleep(stopped_s)
                control.signal(signal.SIGCONT)
                # In threads, all that waits: the light agent beats on meanwhile.
                await trio.to_thread.run_sync(control.wait_for, "control plane slept", slept + 1)
                await trio.to_thread.run_sync(cluster.wait_for_state, "gpu1", "online")
                assert (await trio.to_thread.run_sync(cluster.nodes))["light"]["facts"]
            nursery.cancel_scope.cancel()
        events = cluster.events()
    kinds = {(event["kind"], event["node"]) for event in events if event["node"]}
    assert not {kind for kind, _ in kinds if kind == "node lost"}
    # On a starved machine the light agent itself may miss two beats; nobody is lost, and its link is the same one.
    harmless = {"node connected", "node reported", "node disconnected", "node suspect", "node online"}
    assert {kind for kind, node in kinds if node == "light"} <= harmless
    assert [event["node"] for event in events if event["kind"] == "node connected"].count("light") == 1


async def keep_beating(light: LightAgent, link: object) -> None:
    while True:
        await light.beat(link)  # type: ignore[arg-type]
        await trio.sleep(0.2)


# A full disk.


async def test_a_full_disk_is_said_and_nothing_breaks(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk, running_cluster(tmp_path / "cluster") as cluster:
        cluster.state = disk / "state"
        control = cluster.start_control()
        gpu1 = cluster.start_agent("gpu1")
        gpu1.wait_for("INFO connected ")
        wait_until(lambda: reporters(cluster), "all that it has looked at")
        light, new = cluster.light_agent(1, "light"), cluster.light_agent(2, "new")
        async with light.talk() as link:
            fill(disk / "filler")
            with pytest.raises(LinkClosed, match="the disk is full"):
                await light.report(link, evolve(light.facts, disk_free_mib=1024))
        with pytest.raises(LinkClosed, match="the disk is full"):
            async with new.talk():
                pass
        with pytest.raises(AssertionError, match=r"could not be stored: .*the disk is full"):
            cluster.ctl("cert", "revoke", "gpu1")
        gpu1.wait_for("is revoked")
        control.wait_for("refused node=new .*the disk is full")
        nodes = cluster.nodes()
        assert "its certificate is revoked" in nodes["gpu1"]["troubles"]
        assert "new" not in nodes
        check_store(cluster)

        (disk / "filler").unlink()
        async with new.talk(), light.talk():
            assert light.acknowledged == 2
            assert {cluster.nodes()[name]["state"] for name in ("light", "new")} <= {"online", "suspect"}
        assert "revoked" in cluster.ctl("cert", "revoke", "gpu1")
        check_store(cluster)
        assert [event["node"] for event in cluster.events("node reported")] == ["gpu1", "light", "new"]


# A clock that is wrong.

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) {
    static volatile long *kept;
    if (!kept) kept = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC), 0);
    return *kept;
}
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) at->tv_sec += shift();
    return result;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


@frozen
class Clock:
    """A clock of a process, wrong by so many seconds."""

    library: Path
    shift: Path

    @classmethod
    def make(cls, directory: Path, seconds: int) -> Clock:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler, to make a wrong clock")
        library, shift = directory / "clock.so", directory / f"shift{seconds}"
        source = directory / "clock.c"
        source.write_text(CLOCK)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        clock = cls(library, shift)
        clock.set(seconds)
        return clock

    def set(self, seconds: int) -> None:
        with self.shift.open("r+b" if self.shift.exists() else "wb") as file:
            file.write(struct.pack("l", seconds))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT": str(self.shift)}


def test_an_agent_whose_clock_is_behind_says_so_and_comes_in_when_it_is_set(cluster: Cluster, tmp_path: Path) -> None:
    """F13. The certificates are good from five minutes before their issue; ahead by an hour is no trouble at all."""
    behind, ahead = Clock.make(tmp_path, -HOUR_S), Clock.make(tmp_path, HOUR_S)
    control = cluster.start_control()
    late = cluster.start_agent("late", environment=behind.environment)
    cluster.start_agent("early", environment=ahead.environment)
    line = late.wait_for("not connected")
    assert "the peer's certificate is not yet valid: it begins on" in line
    assert "this machine's clock says" in line
    assert "earlier; that clock is wrong" in line
    control.wait_for(r"refused .*our certificate does not pass its checks \(its name, address or dates\)")
    cluster.wait_for_state("early", "online")
    assert "late" not in cluster.nodes()
    assert abs(cluster.nodes()["early"]["last_seen"] - _seconds()) < 60
    behind.set(0)
    late.wait_for("INFO connected ")
    cluster.wait_for_state("late", "online")


def test_a_control_plane_whose_clock_is_behind_says_whose_clock_it_is(cluster: Cluster, tmp_path: Path) -> None:
    behind = Clock.make(tmp_path, -HOUR_S)
    control = cluster.start_control(environment=behind.environment)
    agent = cluster.start_agent("gpu1")
    for line in (control.wait_for("refused"), agent.wait_for("not connected")):
        assert "node gpu1 refused: its certificate is not yet valid: it begins on" in line
        assert "the control plane's clock says" in line
    behind.set(0)  # its clock is set forward by an hour, under everybody's eyes
    agent.wait_for("INFO connected ")
    cluster.wait_for_state("gpu1", "online")
    assert cluster.events("node lost") == []


def _seconds() -> float:
    return time.time()  # noqa: TID251 - the real clock is what the agent's is held against


# A link that is cut.


@pytest.fixture
def network() -> Iterator[Network]:
    with running_network(("deaf", "mute", "gone")) as made:
        yield made


def test_a_link_that_is_cut_either_way_is_noticed_by_both_sides_and_made_again(
    tmp_path: Path, network: Network
) -> None:
    """F06. Nobody gets a word from TCP: both ends have a half-open connection."""
    hub = network.inside("hub")
    pace = {"heartbeat_s": 2.0, "lost_after_s": 12.0}  # of a shorter silence a machine that is busy would be the cause
    with running_cluster(tmp_path, host=network.address, port=7443, outlook=hub, **pace) as cluster:
        control = cluster.start_control(prefix=hub)
        agents = {node: cluster.start_agent(node, prefix=network.inside(node)) for node in network.nodes}
        for agent in agents.values():
            agent.wait_for("INFO connected ")
        network.cut_from_control("deaf")
        network.cut_to_control("mute")
        network.cut_from_control("gone")
        network.cut_to_control("gone")
        for node, agent in agents.items():
            assert "nothing was heard for 6 s" in agent.wait_for("not connected")
            control.wait_for(f"node disconnected node={node} ")
            control.wait_for(f"node lost node={node} ")
        for node in ("mute", "gone"):
            assert "nothing was heard for 12 s" in control.wait_for(f"node disconnected node={node} ")
        for node in network.nodes:
            network.heal(node)
        for node, agent in agents.items():
            agent.wait_for("INFO connected ", times=2)
            cluster.wait_for_state(node, "online")
        assert all(agent.process.poll() is None for agent in agents.values())
        names = [event["node"] for event in cluster.events("node connected")]
        assert sorted(names) == sorted([*network.nodes, *network.nodes])

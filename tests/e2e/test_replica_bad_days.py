"""Whoever is killed, in whatever phase, and whatever an engine does: its replica is rebuilt, and nothing is left over.

A first failure costs 10 s until the next attempt, so what may fail at the same time does.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen

from llmgw_core.plan.shard_tree import Process
from llmgw_core.testing.cluster import END_S, Cluster, Daemon, running_cluster, wait_until
from llmgw_core.testing.sim_model import Hold, asked, complete, sim_model, streamed

NODES = ("n1", "n2")
GPUS = 20
WEB = {"web": {"command": [sys.executable, "-u", "-m", "http.server", "{port}"], "ready_path": "/"}}


@define(eq=False)
class Fleet:
    cluster: Cluster
    control: Daemon
    agents: dict[str, Daemon] = field(factory=dict)

    def start_agent(self, name: str) -> None:
        self.agents[name] = self.cluster.start_agent(name, gpus=GPUS, fabric="ib-a")

    def wait_for(self, *ids: str, above: int = -1) -> dict[str, dict[str, Any]]:
        """These replicas in full, by id, as soon as they are ready."""
        for id in ids:
            self.cluster.wait_for_replica(id, above=above)
        return {id: self.cluster.replica(id) for id in ids}

    def wait_for_engines(self, *ids: str) -> dict[str, dict[str, Any]]:
        """As `wait_for`, as soon as they run: they are held while they load."""

        def run() -> dict[str, dict[str, Any]] | None:
            found = {id: self.cluster.replica(id) for id in ids}
            started = all(shard["pid"] for replica in found.values() for shard in replica["shards"])
            return found if started and all(replica["shards"] for replica in found.values()) else None

        wait_until(lambda: {*ids} <= self.cluster.replicas().keys(), "their records")
        found: dict[str, dict[str, Any]] = wait_until(run, f"engines of {', '.join(ids)}")
        assert {replica["state"] for replica in found.values()} == {"starting"}
        return found


@pytest.fixture(scope="module", name="fleet")
def _fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running_cluster(tmp_path_factory.mktemp("fleet")) as cluster:
        fleet = Fleet(cluster, cluster.start_control())
        for name in NODES:
            fleet.start_agent(name)
        cluster.wait_until_looked(*NODES)
        yield fleet
        cluster.apply("")
        cluster.wait_until_gone()


# Killed: each part of a replica, in each phase.

PARTS = ("front", "worker", "head", "sidecar", "reaper")
PHASES = ("loading", "ready", "stopping")


@frozen
class Scene:
    """What holds the replicas in the phase in which they are killed, and what their fronts leave behind."""

    directory: Path

    def hold(self, phase: str) -> Hold:
        return Hold(self.directory / phase, {"stopping": "stop"}.get(phase, phase))

    def orphan_file(self, phase: str) -> Path:
        return self.directory / f"orphan-{phase}"

    def orphan(self, phase: str) -> int:
        """The pid of what a front has left behind, as soon as it has; it does before it loads."""
        file = self.orphan_file(phase)
        return int(wait_until(lambda: file.exists() and file.read_text().strip(), f"{file} with a pid"))


def model_of(part: str, phase: str, scene: Scene) -> str:
    flags: tuple[str, ...] = scene.hold(phase).flags if phase != "ready" else ()
    if part == "front":
        flags = (*flags, "--fault-orphan", str(scene.orphan_file(phase)))
    if (part, phase) == ("worker", "stopping"):
        flags = ("--fault-ignore-sigterm", "--fault-rank", "0")  # with its head at rest, a worker ends by itself
    profile: dict[str, Any] = {"nodes": 2} if part in ("worker", "head") else {}
    return sim_model(f"{part}-{phase}", *flags, **profile, sidecars=WEB if part == "sidecar" else {})


def victim(cluster: Cluster, part: str, replica: Mapping[str, Any]) -> int:
    """The pid of the process that is to die."""
    rank = 1 if part == "worker" else 0
    front: int = replica["shards"][rank]["pid"]
    if part not in ("sidecar", "reaper"):
        return front
    family = {each.pid: each for each in cluster.shard_processes(f"{replica['id']}#{rank}@{replica['generation']}")}
    reaper = family[front].parent
    if part == "reaper":
        return reaper
    (sidecar,) = (each.pid for each in family.values() if each.parent == reaper and each.pid != front)
    return sidecar


@define(eq=False)
class Aftermath:
    """What was killed, and what came of it."""

    cluster: Cluster
    before: dict[str, dict[str, Any]] = field(factory=dict)
    after: dict[str, dict[str, Any]] = field(factory=dict)
    orphans: dict[str, int] = field(factory=dict)
    replicas: dict[str, dict[str, Any]] = field(factory=dict)
    processes: tuple[Process, ...] = ()
    events: tuple[dict[str, Any], ...] = ()

    def events_of(self, model: str) -> list[str]:
        """The kinds of what happened to its first replica."""
        return [event["kind"] for event in self.events if re.match(rf"{model}/1\W", event["reason"])]

    def kill(self, replicas: Mapping[str, Mapping[str, Any]]) -> None:
        victims = [victim(self.cluster, model.partition("-")[0], each) for model, each in replicas.items()]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module", name="aftermath")
def _aftermath(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    scene, cluster = Scene(tmp_path_factory.mktemp("scene")), fleet.cluster
    texts = {phase: "".join(model_of(part, phase, scene) for part in PARTS) for phase in PHASES}
    ids = {phase: [f"{part}-{phase}/1" for part in PARTS] for phase in PHASES}
    made = Aftermath(cluster)
    scene.hold("loading").take()
    cluster.apply(texts["loading"])
    made.before |= (loading := fleet.wait_for_engines(*ids["loading"]))
    made.orphans["loading"] = scene.orphan("loading")
    made.kill(loading)
    scene.hold("loading").release()
    cluster.apply("".join(texts.values()))
    made.before |= (ready := fleet.wait_for(*ids["ready"]))
    made.before |= (stopping := fleet.wait_for(*ids["stopping"]))
    made.orphans |= {phase: scene.orphan(phase) for phase in ("ready", "stopping")}
    made.kill(ready)
    scene.hold("stopping").take()
    cluster.apply(texts["loading"] + texts["ready"])
    wait_until(lambda: stops_everywhere(fleet, ids["stopping"]), "all of them asked to end")
    made.kill(stopping)
    scene.hold("stopping").release()
    wait_until(lambda: not any("stopping" in id for id in cluster.replicas()), "what stopped gone")
    made.after = fleet.wait_for(*ids["loading"], *ids["ready"], above=1)
    made.replicas, made.processes, made.events = cluster.replicas(), cluster.shard_processes(), tuple(cluster.events())
    return made


def stops_everywhere(fleet: Fleet, ids: list[str]) -> bool:
    """Whether the head of each was told, and the signal sent."""
    shown = [fleet.cluster.replica(id)["shards"][0] for id in ids]
    return all(each["phase"] == "stopping" and "SIGTERM was sent" in each["reason"] for each in shown)


@pytest.mark.parametrize("phase", ["loading", "ready"])
@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_takes_its_replica_down_and_it_is_rebuilt(aftermath: Aftermath, part: str, phase: str) -> None:
    """E01, E06, E07, E27, F37."""
    model = f"{part}-{phase}"
    before, after = aftermath.before[f"{model}/1"], aftermath.after[f"{model}/1"]
    failure = after["last_failure"]
    rank = 1 if part == "worker" else 0
    assert (after["generation"], after["failures"]) == (before["generation"] + 1, 1)
    assert failure["rank"] == rank
    assert failure["node"] == before["shards"][rank]["node"]
    if part == "sidecar":
        assert failure["reason"].startswith("sidecar web: it ended by itself with signal 9 (SIGKILL)")
    elif part == "reaper":
        assert failure["reason"] == "its reaper was killed"
    else:
        assert failure["exit"] == "signal 9 (SIGKILL)"
    assert complete(after["address"], model)
    markers = {each.marker for each in aftermath.processes if each.marker.startswith(f"{model}/")}
    assert markers == {f"{model}/1#{shard['rank']}@{after['generation']}" for shard in after["shards"]}
    if len(before["shards"]) > 1:
        assert before["rendezvous"] != after["rendezvous"]
    ready_before = ["replica ready"] if phase == "ready" else []
    again = ["replica placed", "replica ready"]
    assert aftermath.events_of(model) == ["replica placed", *ready_before, "replica failed", *again]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_killed_while_it_stops_is_no_failure(aftermath: Aftermath, part: str) -> None:
    model = f"{part}-stopping"
    assert aftermath.before[f"{model}/1"]["state"] == "ready"
    assert f"{model}/1" not in aftermath.replicas
    assert not [each for each in aftermath.processes if each.marker.startswith(f"{model}/")]
    told = aftermath.events_of(model)
    assert told == ["replica placed", "replica ready", "replica stopping", "replica stopped"]


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_killed_front_leaves_behind_is_gone_before_the_next_starts(aftermath: Aftermath, phase: str) -> None:
    """E01: the next one holds the same lock, so it would have refused to start."""
    assert aftermath.orphans[phase] not in {each.pid for each in aftermath.processes}


# Killed or started anew: the agent and the control plane, while one replica loads, one serves and one stops.


@pytest.mark.parametrize("who", ["agents", "control"])
def test_engines_outlive_who_runs_them(fleet: Fleet, who: str, tmp_path: Path) -> None:
    """F07, F22, F35: nothing starts anew, a stream is not cut, and what was to stop stops.

    On each node one loads, one serves and one stops: so large that no node has room for both of a model. One of the
    agents is killed, and one upgraded.
    """
    cluster = fleet.cluster
    serves, loads, ends = f"serves-{who}", f"loads-{who}", f"ends-{who}"
    loading, tokens, stop = (Hold(tmp_path / what, what) for what in ("loading", "tokens", "stop"))
    lasting = sim_model(serves, *tokens.flags, nodes=2) + sim_model(loads, *loading.flags, replicas=2, gpus_per_node=6)
    ending = sim_model(ends, *stop.flags, replicas=2, gpus_per_node=10)
    cluster.offer(lasting + ending)
    loading.take()
    cluster.apply(lasting + ending)
    before = fleet.wait_for(f"{serves}/1", f"{ends}/1", f"{ends}/2")
    before |= fleet.wait_for_engines(f"{loads}/1", f"{loads}/2")
    for hold in (tokens, stop):
        hold.take()
    with asked(before[f"{serves}/1"]["address"], serves, stream=True, max_tokens=100) as answer:
        cluster.apply(lasting)
        wait_until(lambda: stops_everywhere(fleet, [f"{ends}/1", f"{ends}/2"]), "both asked to end")
        replace(fleet, who)
        for hold in (loading, tokens, stop):
            hold.release()
        after = fleet.wait_for(f"{serves}/1", f"{loads}/1", f"{loads}/2")
        wait_until(lambda: not any(id.startswith(ends) for id in cluster.replicas()), "what stopped gone")
        assert len([piece for piece in streamed(answer) if piece]) == 100, "to its end"
    for id, replica in after.items():
        assert replica["generation"] == before[id]["generation"] == 1
        assert [each["pid"] for each in replica["shards"]] == [each["pid"] for each in before[id]["shards"]]
    for model in (loads, ends):
        assert {before[f"{model}/{number}"]["nodes"][0] for number in (1, 2)} == set(NODES)
    mine = [event["kind"] for event in cluster.events("replica") if f"-{who}/" in event["reason"]]
    told = [*["replica placed", "replica ready"] * 5, *["replica stopping", "replica stopped"] * 2]
    assert sorted(mine) == sorted(told)
    assert cluster.shard_processes(f"{ends}/") == ()


def replace(fleet: Fleet, who: str) -> None:
    """End it, and start it again."""
    if who == "control":
        fleet.control.kill()
        fleet.control = fleet.cluster.start_control()
        return
    killed, upgraded = NODES
    fleet.agents[killed].kill()
    fleet.agents[upgraded].signal(signal.SIGTERM)
    assert fleet.agents[upgraded].process.wait(END_S) == 0
    for name in NODES:
        fleet.start_agent(name)
    for name in NODES:
        fleet.agents[name].wait_for("INFO connected ")

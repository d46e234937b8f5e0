"""What engines and strangers do by themselves: told with its cause, and the replica rebuilt after 10 s at first.

All of it happens on one fleet at the same time, so that the waiting is done once.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from llmgw_core.plan.restart import FIRST_S, FREE
from llmgw_core.testing.cluster import PORTS, SERVE_PORTS, Cluster, running_cluster, wait_until
from llmgw_core.testing.sim_model import REQUEST_S, Hold, complete, sim_model

NODES = ("n1", "n2")
START_S = 25
"""For what is never ready: in this time its engine runs, however busy the machine is."""
OTHER_LATE = sim_model("late", nodes=2)
"""What replaces the profile that is never ready in time."""


class Health200(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *_: object) -> None:
        pass


@contextmanager
def stranger(port: int) -> Iterator[None]:
    """Somebody else's server, that answers 200 to whatever is asked."""
    server = ThreadingHTTPServer(("0.0.0.0", port), Health200)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def hang_on(address: str, model: str) -> socket.socket:
    """A request of which nobody waits for the answer."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=REQUEST_S)
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "?"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(f"{head}{body}".encode())
    return connection


@define(eq=False)
class Seen:
    cluster: Cluster
    replicas: dict[str, dict[str, Any]] = field(factory=dict)
    """By model, when it was ready again, or as it was left."""
    first: dict[str, dict[str, Any]] = field(factory=dict)
    """The first attempt of some."""
    looked_at: float = 0.0
    """When the second crash was seen."""
    late_due: float = 0.0
    """When `late` would have been placed again, had its profile not changed."""
    other_late: dict[str, Any] = field(factory=dict)
    waits: str = ""
    """What the replica whose port a stranger has waits for."""
    events: tuple[dict[str, Any], ...] = ()

    def ready(self, model: str, above: int = 0) -> None:
        self.cluster.wait_for_replica(f"{model}/1", above=above)
        self.replicas[model] = self.cluster.replica(f"{model}/1")


@pytest.fixture(scope="module", name="seen")
def _seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    directory = tmp_path_factory.mktemp("fleet")
    with running_cluster(directory) as cluster:
        cluster.start_control()
        seen = Seen(cluster)
        with ExitStack() as strangers:
            known = [cluster.first_port + PORTS * number + SERVE_PORTS - 1 for number in range(len(NODES))]
            for port in known:
                strangers.enter_context(stranger(port))
            for name in NODES:
                cluster.start_agent(name, gpus=8, fabric="ib-a")
            # They look at ports at their start, and not again soon: who comes afterwards is met by surprise.
            wait_until(lambda: _busy_ports(cluster) == known, "all nodes have looked at their ports")
            for number in range(len(NODES)):
                strangers.enter_context(stranger(cluster.first_port + PORTS * number))
            cluster.apply(sim_model("port"))
            seen.ready("port")
        _let_them_fail(seen, directory)
        yield seen
        cluster.apply("")
        cluster.wait_until_gone()


def _busy_ports(cluster: Cluster) -> list[int]:
    return [port for name in sorted(cluster.nodes()) for port in cluster.facts_of(name).get("busy_ports", ())]


def _let_them_fail(seen: Seen, directory: Path) -> None:
    cluster, catalog, unwell = seen.cluster, _catalog(directory), _unwell(directory)
    cluster.apply(catalog["port"] + catalog["squat"])
    with stranger(_squat(seen)):
        seen.waits = wait_until(lambda: _reason_with(cluster, "squat", "listens"), "the stranger told")
        cluster.apply("".join(catalog.values()))
        for model in ("dips", "crash", "hang"):
            seen.ready(model)
        unwell.take()
        seen.first["dips"] = cluster.wait_for_replica("dips/1", "unready")
        unwell.release()
        complete(seen.replicas["crash"]["address"], "crash")
        complete(seen.replicas["hang"]["address"], "hang")
        with hang_on(seen.replicas["hang"]["address"], "hang"):
            for model in ("squat", "late"):
                cluster.wait_for_replica(f"{model}/1", "failed")
                seen.replicas[model] = cluster.replica(f"{model}/1")
            seen.late_due = wait_until(lambda: _due(cluster, "late"), "a wait of which most is left", every_s=0.1)
            cluster.apply("".join({**catalog, "late": OTHER_LATE}.values()))
            seen.ready("dips")
            _crash_again(seen)
            for model in ("exit", "silent", "hang"):
                seen.ready(model, above=1)
    seen.other_late = cluster.wait_for_replica("late/1", above=1)
    seen.events = tuple(cluster.events())


def _crash_again(seen: Seen) -> None:
    cluster = seen.cluster
    again = cluster.wait_for_replica("crash/1", above=1)
    complete(again["address"], "crash")

    def failed() -> dict[str, Any] | None:
        replica = cluster.replica("crash/1")
        return replica if replica["failures"] == 2 and replica["state"] == "failed" else None

    seen.replicas["crash"] = wait_until(failed, "the second crash")
    seen.looked_at = time.time()  # noqa: TID251 - the fleet's times are the real clock's


def _due(cluster: Cluster, model: str) -> float:
    """When its next attempt may begin, while most of the wait is left."""
    waits = re.search(r"; again in (\d+) s$", _reason(cluster, model))
    left = int(waits[1]) if waits else 0
    return time.time() + left if left > FIRST_S / 2 else 0.0  # noqa: TID251 - the fleet's times are the real clock's


def _unwell(directory: Path) -> Hold:
    return Hold(directory / "unwell", "health")


def _catalog(directory: Path) -> dict[str, str]:
    def once(name: str) -> tuple[str, str]:
        return "--fault-once", str(directory / f"once-{name}")

    short = {"start_deadline_s": START_S}
    return {
        "exit": sim_model("exit", "--fault-exit-zero", "0.3", *once("exit")),
        "hang": sim_model("hang", "--fault-hang-after-requests", "1", *once("hang"), health={"stall_s": 1.5}),
        "silent": sim_model("silent", "--fault-die-silently", "0.3", "--fault-rank", "1", *once("silent"), nodes=2),
        "crash": sim_model("crash", "--fault-crash-after-requests", "1"),
        "late": sim_model("late", "--load-time", "100", nodes=2, health=short),
        "squat": sim_model("squat", "--fault-refuse-port", health=short),
        "dips": sim_model("dips", *_unwell(directory).flags),
        "port": sim_model("port"),
    }


def _squat(seen: Seen) -> int:
    """The port at which `squat` should listen, as soon as its engine runs: nothing else starts meanwhile."""
    wait_until(lambda: "squat/1" in seen.cluster.replicas(), "squat")

    def running() -> int:
        shards = seen.cluster.replica("squat/1")["shards"]
        return int(shards[0]["port"]) if shards and shards[0]["pid"] else 0

    return int(wait_until(running, "the engine of squat"))


def _reason_with(cluster: Cluster, model: str, word: str) -> str:
    reason = _reason(cluster, model)
    return reason if word in reason else ""


def _reason(cluster: Cluster, model: str) -> str:
    return str(cluster.replicas()[f"{model}/1"]["reason"])


def test_a_port_that_a_stranger_has_costs_another_attempt_and_no_waiting(seen: Seen) -> None:
    replica = seen.replicas["port"]
    failure = replica["last_failure"]
    assert replica["generation"] > 1
    assert failure["kind"] == "port in use"
    number = NODES.index(failure["node"])
    first = seen.cluster.first_port
    assert f"{first + PORTS * number}" in failure["reason"]
    assert replica["shards"][0]["port"] not in range(first, first + 2 * PORTS, PORTS)
    assert replica["failures"] <= FREE, "none of them costs waiting"


def test_an_exit_with_0_that_nobody_asked_for_is_a_failure(seen: Seen) -> None:
    failure = seen.replicas["exit"]["last_failure"]
    assert failure["exit"] == "exit code 0"
    assert "ends with 0" in failure["log_tail"]
    assert complete(seen.replicas["exit"]["address"], "exit")


def test_one_that_hangs_while_its_health_is_good_is_rebuilt(seen: Seen) -> None:
    """E06."""
    failure = seen.replicas["hang"]["last_failure"]
    assert (failure["kind"], failure["exit"]) == ("stalled", "")
    assert failure["reason"] == "stalled: requests run, and nothing moved for 1.5 s"
    assert complete(seen.replicas["hang"]["address"], "hang")


def test_a_worker_that_dies_without_a_word_takes_its_group_down(seen: Seen) -> None:
    """E06, E07: its head goes on with /health 200, and notices nothing."""
    replica = seen.replicas["silent"]
    failure = replica["last_failure"]
    assert (failure["rank"], failure["exit"]) == (1, "exit code 0")
    assert replica["generation"] == 2
    assert complete(replica["address"], "silent")


def test_one_that_is_unready_for_a_while_is_left_alone(seen: Seen) -> None:
    """E11."""
    assert "it loads the model" in seen.first["dips"]["reason"]
    assert (seen.replicas["dips"]["generation"], seen.replicas["dips"]["last_failure"]) == (1, None)


def started_pids(log: str) -> list[str]:
    return re.findall(r"llmgw: engine started, pid (\d+)\n", log)


def test_what_crashes_again_and_again_waits_longer_and_keeps_the_first_failures_log(seen: Seen) -> None:
    replica = seen.replicas["crash"]
    waits = re.search(r"exit code 1.*; again in (\d+) s$", replica["reason"])
    assert waits, replica["reason"]
    first, last = replica["first_failure"], replica["last_failure"]
    assert (first["generation"], last["generation"]) == (1, 2)
    assert last["at"] - first["at"] > FIRST_S, "the first wait"
    assert seen.looked_at + int(waits[1]) - last["at"] > 1.5 * FIRST_S, "the second is twice as long"
    kept = seen.cluster.ctl("logs", "crash/1", "--first-failure")
    later = seen.cluster.ctl("logs", "crash/1")
    assert "fault: crashes" in kept
    assert started_pids(kept) != started_pids(later), "of the first attempt, not of a later one"
    told = seen.cluster.ctl("replica", "crash/1")
    assert "first failure: " in told
    assert "last failure: " in told
    assert re.search(r"\| llmgw-sim: rank 0: fault: crashes", told)


def test_a_group_that_is_not_ready_in_its_time_is_torn_down_as_a_whole(seen: Seen) -> None:
    """E09, E18, E19."""
    failure = seen.replicas["late"]["last_failure"]
    assert failure["kind"] == "not ready in time"
    assert f"not ready {START_S} s after it was placed: rank 0 on" in failure["reason"]
    assert "is starting" in failure["reason"]
    assert seen.cluster.shard_processes("late/1#0@1") == seen.cluster.shard_processes("late/1#1@1") == ()


def test_a_stranger_who_answers_at_its_port_does_not_make_a_replica_ready(seen: Seen) -> None:
    """E12."""
    assert re.search(r"listens", seen.waits), seen.waits
    failure = seen.replicas["squat"]["last_failure"]
    assert failure["kind"] == "not ready in time"
    assert not [each for each in seen.events if each["kind"] == "replica ready" and "squat/1" in each["reason"]]


def test_another_profile_is_tried_at_once(seen: Seen) -> None:
    """What failed says nothing about it: it is placed before the other one would have been."""
    replica = seen.other_late
    assert replica["placed_at"] < seen.late_due
    assert replica["failures"] == 0
    assert complete(replica["address"], "late")

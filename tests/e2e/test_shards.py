"""The life of shards on one node: real reapers, real sim engines, no control plane."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import trio
from attrs import define, evolve

from llmgw_core.agent.processes import lives, started_at
from llmgw_core.engine import Stop, StopStep
from llmgw_core.model.catalog import HealthTimings
from llmgw_core.model.launch import Stage
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.shard_tree import ProcessId
from llmgw_core.testing import cluster
from llmgw_core.testing.running_node import (
    DEADLINE_S,
    SIM,
    RunningNode,
    a_launch,
    marked_processes,
    running_node,
    wait_until,
)
from llmgw_core.testing.sim_model import Hold
from llmgw_core.wire.message import ReadLog

FAILED, READY, UNREADY = ShardPhase.FAILED, ShardPhase.READY, ShardPhase.UNREADY


def script(path: Path, does: str) -> str:
    """An engine that helps as the sim does, and runs as `does` says."""
    path.write_text(f'#!/bin/sh\ncase "$*" in *--help*|*--version*) exec {SIM} "$@";; esac\n{does}\n')
    path.chmod(0o755)
    return str(path)


def read(path: str) -> str:
    return Path(path).read_text()


def ask_engine(port: int, path: str = "/health") -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return connection.makefile("rb").read().decode()


def metric(port: int, name: str) -> float:
    """The sum of the metrics that end so."""
    lines = ask_engine(port, "/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.partition("{")[0].split(" ")[0].endswith(name))


@define(eq=False)
class Stream:
    """A streamed completion, read in a thread."""

    port: int
    tokens: int
    text: str = ""
    chunks: int = 0
    ended: bool = False

    def read(self) -> None:
        body = json.dumps({"model": "m", "prompt": "x", "max_tokens": self.tokens, "stream": True})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            with connection.getresponse() as answer:
                for line in answer:
                    self.text += line.decode()
                    self.chunks += line.startswith(b"data:")
        except (OSError, http.client.HTTPException):
            pass  # a stream that is cut
        finally:
            connection.close()
            self.ended = True


async def kill_front(node: RunningNode, pid: int) -> ProcessId:
    start = started_at(pid)
    assert start is not None
    os.kill(pid, signal.SIGKILL)
    return ProcessId(pid, start)


async def test_it_is_checked_then_started_then_ready_then_gone(tmp_path: Path) -> None:
    launch = a_launch("--load-time", "0.3")
    async with running_node(tmp_path) as node:
        node.run(launch, stage=Stage.PREPARE)
        prepared = await node.wait(launch, ShardPhase.PREPARED)
        assert marked_processes(tmp_path) == ()
        assert prepared.argv[0] == SIM
        assert (prepared.gpus, prepared.pid) == (("GPU-0",), 0)
        status = await node.ready(launch)
        assert "200" in ask_engine(launch.places[0].port)
        assert read(f"/proc/{status.pid}/cmdline").split("\0")[1:-1] == list(status.argv)
        await wait_until(lambda: READY in node.phases(launch), "it told")
        await node.stop(launch)
        assert marked_processes(tmp_path) == ()
        assert node.phases(launch) == [*list(ShardPhase)[:4], ShardPhase.STOPPING]
        assert "llmgw-sim: rank 0: ready" in (await node.runtime.read_log(ReadLog(1, launch.replica, 0))).text
        assert [path.name for path in next((tmp_path / "shards").iterdir()).iterdir()] == ["logs"]


async def test_its_environment_is_as_stated(tmp_path: Path) -> None:
    sim = script(tmp_path / "sim", f'env > {tmp_path}/env\nexec {SIM} "$@"')
    environ = {
        **os.environ,
        "LLMGW_IDENTITY": "x",
        "NOTIFY_SOCKET": "/run/x",
        "SIM_API_KEY": "inherited",
        "OWN": "kept",
    }
    launch = a_launch(env={"STATED": "yes"})
    async with running_node(tmp_path / "agent", sim=sim, environ=environ) as node:
        await node.ready(launch)
        lines = (tmp_path / "env").read_text().splitlines()
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        assert (env["OWN"], env["STATED"], env["CUDA_VISIBLE_DEVICES"]) == ("kept", "yes", "GPU-0")
        assert {name for name in env if name.startswith("LLMGW_")} == {"LLMGW_SHARD", "LLMGW_AGENT"}
        assert env["LLMGW_SHARD"] == "m/1#0@1"
        assert not {"NOTIFY_SOCKET", "SIM_API_KEY"} & env.keys()


async def test_the_shards_of_a_group_meet_and_one_that_is_killed_takes_the_others_down(tmp_path: Path) -> None:
    """E06, E07: told by the agents in the moment it happens."""
    launch = a_launch(nodes=2)
    async with running_node(tmp_path) as node:
        node.run(launch, 0)
        node.run(launch, 1)
        await node.wait(launch, READY, rank=0)
        worker = await node.wait(launch, READY, rank=1)
        await kill_front(node, worker.pid)
        told = await node.wait(launch, FAILED, rank=1)
        assert told.failure is not None
        assert (told.failure.kind, told.failure.exit) == ("killed", "signal 9 (SIGKILL)")
        head = await node.wait(launch, FAILED, rank=0)
        assert head.failure is not None
        assert (head.failure.kind, head.failure.exit) == ("peer lost", "exit code 1")
        assert "rank 1 was lost" in head.failure.log_tail
        assert marked_processes(tmp_path) == ()


async def test_a_failed_one_is_told_until_it_is_stopped(tmp_path: Path) -> None:
    launch = a_launch("--fault-crash-while-loading", "0.1")
    async with running_node(tmp_path) as node:
        node.run(launch)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert status.failure.exit == "exit code 1"
        assert "crash" in status.failure.log_tail
        await wait_until(lambda: FAILED in node.phases(launch), "it told")
        assert node.phases(launch)[-2:] == [ShardPhase.STOPPING, FAILED]
        first = await node.runtime.read_log(ReadLog(1, launch.replica, 0, first_failure=True))
        await node.stop(launch)
        again = evolve(launch, generation=2)
        node.run(again)
        await node.wait(again, FAILED)
        log = await node.runtime.read_log(ReadLog(2, launch.replica, 0, first_failure=True))
        assert (log.generation, log.text) == (1, first.text)
        assert (await node.runtime.read_log(ReadLog(3, launch.replica, 0))).generation == 2


async def test_an_exit_with_0_that_nobody_asked_for_is_a_failure(tmp_path: Path) -> None:
    launch = a_launch("--fault-exit-zero", "0.2")
    async with running_node(tmp_path) as node:
        node.run(launch)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert (status.failure.kind, status.failure.exit) == ("crashed", "exit code 0")


async def test_what_a_killed_front_process_leaves_behind_is_gone_before_it_has_failed(tmp_path: Path) -> None:
    """E01, E02: the child leads a session of its own, ignores SIGTERM and has no marker in its environment."""
    lock = tmp_path / "gpu"
    orphan = (
        f"setsid env -i /bin/sh -c 'trap \"\" TERM; exec 9>{lock}; flock 9; while :; do sleep 1; done' VLLM::Worker &"
    )
    sim = script(tmp_path / "sim", f'{orphan}\nexec {SIM} "$@"')
    launch = a_launch()
    async with running_node(tmp_path / "agent", sim=sim) as node:
        status = await node.ready(launch)
        await wait_until(lock.exists, "what it leaves behind")
        _, family = await node.runtime.shards._attempts[launch.replica, 0, 1].family.look()
        assert any(not each.marker for each in family)
        assert len(family) > 1
        await kill_front(node, status.pid)
        await node.wait(launch, FAILED)
        assert not any(lives(each.id) for each in family)
        again = evolve(launch, generation=2)
        assert (await node.ready(again)).pid != status.pid
        await node.stop(again)


async def test_stopping_one_shard_touches_no_other(tmp_path: Path) -> None:
    """E04."""
    one, other = a_launch(model="one"), a_launch(model="other")
    async with running_node(tmp_path) as node:
        await node.ready(one)
        before = await node.ready(other)
        await node.stop(one)
        assert node.status(other) == before
        assert "200" in ask_engine(other.places[0].port)
        assert {each.marker for each in marked_processes(tmp_path)} == {"other/1#0@1"}


async def test_an_abnormal_exit_during_an_intended_stop_is_no_failure(tmp_path: Path) -> None:
    """E22."""
    sim = script(tmp_path / "sim", f'trap "kill -ABRT $$" TERM\n{SIM} "$@" &\nwait')
    launch = a_launch()
    async with running_node(tmp_path / "agent", sim=sim) as node:
        await node.ready(launch)
        await node.stop(launch)
        assert not any(status.failure for statuses in node.seen for status in statuses)
        log = await node.runtime.read_log(ReadLog(1, launch.replica, 0))
        assert "engine ended: signal 6" in log.text


async def test_one_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    """E25: no end waits for an engine's grace without a bound."""
    launch = a_launch("--fault-ignore-sigterm", "--fault-orphan", str(tmp_path / "held"))
    async with running_node(tmp_path / "agent") as node:
        await node.ready(launch)
        attempt = node.runtime.shards._attempts[launch.replica, 0, 1]
        attempt.kept = evolve(attempt.kept, stop=Stop((StopStep("SIGTERM", 0.3),)))
        await node.stop(launch)
        assert marked_processes(tmp_path / "agent") == ()


async def test_a_port_that_a_stranger_has_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        launch = a_launch(ports=[stranger.getsockname()[1]])
        async with running_node(tmp_path) as node:
            node.run(launch, stage=Stage.PREPARE)
            status = await node.wait(launch, FAILED)
            assert status.failure is not None
            assert status.failure.kind == "port in use"
            assert f"port {launch.places[0].port}: " in status.failure.reason


@contextmanager
def stranger_at(port: int) -> Iterator[None]:
    """Answers every question with 200."""

    class Always(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", port), Always) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


async def test_a_stranger_who_answers_at_its_port_makes_it_not_ready(tmp_path: Path) -> None:
    """E12."""
    launch = a_launch("--fault-refuse-port")
    async with running_node(tmp_path) as node:
        node.run(launch)
        await node.wait(launch, ShardPhase.STARTING)
        await wait_until(lambda: (s := node.status(launch)) and s.pid, "an engine")
        with stranger_at(launch.places[0].port):
            await wait_until(lambda: "something else listens" in node.reason(launch), "the stranger told")
        assert READY not in node.phases(launch)


def waits_after_close(port: int) -> bool:
    return any(f":{port:04X} " in line and " 06 " in line for line in read("/proc/net/tcp").splitlines())


async def test_a_port_in_time_wait_is_free(tmp_path: Path) -> None:
    """E15, E16: started again at once at the port at which it just closed connections."""
    launch = a_launch()
    port = launch.places[0].port
    async with running_node(tmp_path) as node:
        await node.ready(launch)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while connection.recv(4096):  # it closes first, so TIME_WAIT is on its side
                pass
        await wait_until(lambda: waits_after_close(port), "a connection in TIME_WAIT")
        await node.stop(launch)
        await node.ready(evolve(launch, generation=2))


async def test_one_that_loads_for_long_is_not_hurried(tmp_path: Path) -> None:
    """E09, E11: 503 while it loads is no failure, whatever the misses."""
    launch = a_launch("--load-time", "1.5", health=HealthTimings(probe_every_s=0.1, misses=1, stall_s=0.5))
    async with running_node(tmp_path) as node:
        await node.ready(launch)
        await wait_until(lambda: READY in node.phases(launch), "it told")
        told = node.phases(launch)
        assert told[told.index(READY) - 1] is ShardPhase.STARTING


async def test_unready_comes_and_goes_and_is_a_failure_when_it_stays(tmp_path: Path) -> None:
    health, unwell = HealthTimings(probe_every_s=0.05, misses=2), Hold(tmp_path / "unwell", "health")
    launch = a_launch(*unwell.flags, health=health)
    stays = a_launch(*unwell.flags, model="stays", health=evolve(health, stall_s=0.5))
    async with running_node(tmp_path) as node:
        await node.ready(launch)
        unwell.take()
        await node.wait(launch, UNREADY)
        unwell.release()
        await node.wait(launch, READY)
        await node.ready(stays)
        unwell.take()
        status = await node.wait(stays, FAILED)
        assert status.failure is not None
        assert status.failure.kind == "stalled"
        assert status.failure.reason.startswith("stalled: unready for 0.5 s: ")


async def test_one_that_answers_and_does_not_move_has_stalled(tmp_path: Path) -> None:
    launch = a_launch("--fault-hang-after-requests", "1", health=HealthTimings(probe_every_s=0.1, stall_s=0.6))
    request = b'{"model": "m", "prompt": "x", "max_tokens": 2}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request)}\r\n\r\n".encode()
    async with running_node(tmp_path) as node:
        await node.ready(launch)
        with socket.create_connection(("127.0.0.1", launch.places[0].port)) as connection:
            connection.sendall(head + request)
            connection.recv(4096)
            connection.sendall(head + request)
            status = await node.wait(launch, FAILED)
            assert status.failure is not None
            assert "nothing moved for 0.6 s" in status.failure.reason


async def test_an_engine_upgraded_under_the_agents_feet_refuses_the_next_launch_by_the_flags_name(
    tmp_path: Path,
) -> None:
    sim = script(tmp_path / "sim", f'exec {SIM} "$@"')
    launch = a_launch()
    async with running_node(tmp_path / "agent", sim=sim) as node:
        before = await node.ready(launch)
        beside = tmp_path / "sim.new"
        beside.write_text(f"#!/bin/sh\n{SIM} \"$@\" | sed 's/--served-model-name/--public-name/g'\n")
        beside.chmod(0o755)
        beside.replace(sim)
        later = a_launch(model="later")
        node.run(later, stage=Stage.PREPARE)
        status = await node.wait(later, FAILED)
        assert status.failure is not None
        assert status.failure.kind == "bad arguments"
        assert status.failure.reason.startswith("--served-model-name (not documented)")
        assert status.help_digest not in (None, before.help_digest), "of the engine that refused"
        assert status.pid == 0
        assert node.status(launch) == before


async def test_weights_that_are_not_there_are_told_before_anything_starts(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path, look_at_weights=lambda source: f"{source}: no such directory") as node:
        node.run(launch, stage=Stage.PREPARE)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert (status.failure.kind, status.failure.reason) == ("weights", "/models/m: no such directory")


async def test_two_attempts_run_side_by_side_and_older_ones_are_answered_with_the_newest(tmp_path: Path) -> None:
    launch, newer = a_launch(generation=3), a_launch(generation=4)
    async with running_node(tmp_path) as node:
        await node.ready(launch)
        await node.ready(newer)
        assert {each.marker for each in marked_processes(tmp_path)} == {"m/1#0@3", "m/1#0@4"}
        await node.stop(launch)
        node.run(launch)
        assert node.status(launch) is None
        assert {each.marker for each in marked_processes(tmp_path)} == {"m/1#0@4"}
        await node.stop(newer)
    async with running_node(tmp_path) as node:  # it is on disk
        node.run(launch)
        (told,) = node.runtime.statuses()
        assert (told.generation, told.phase, told.pid) == (4, FAILED, 0)
        assert told.reason == "generation 3 was ordered, and this node has seen 4"
        node.ask_to_stop(launch)
        assert node.runtime.statuses() == (told,)
        node.ask_to_stop(newer)
        assert node.runtime.statuses() == ()
        node.run(launch)
        assert node.runtime.statuses() == (told,)
        newest = evolve(newer, generation=5)
        await node.ready(newest)
        assert {each.generation for each in node.runtime.statuses()} == {5}
        await node.stop(newest)


async def test_requests_in_flight_end_before_the_engine_is_told_to_stop(tmp_path: Path) -> None:
    tokens = Hold(tmp_path / "tokens", "tokens")
    launch = a_launch(*tokens.flags)
    async with running_node(tmp_path) as node, trio.open_nursery() as nursery:
        await node.ready(launch)
        tokens.take()
        stream = Stream(launch.places[0].port, tokens=40)
        nursery.start_soon(trio.to_thread.run_sync, stream.read)
        await wait_until(lambda: metric(launch.places[0].port, "requests_running") > 0, "the stream runs")
        node.ask_to_stop(launch, in_flight_s=600.0)
        status = await node.wait(launch, ShardPhase.STOPPING)
        await wait_until(lambda: "in flight" in node.reason(launch), "it waits for the stream")
        assert status.pid
        assert not stream.ended
        tokens.release()
        await wait_until(lambda: node.status(launch) is None, "the shard gone")
        await wait_until(lambda: stream.ended, "its end")
        assert stream.text.rstrip().endswith("data: [DONE]")


async def test_requests_in_flight_are_waited_for_no_longer_than_was_said(tmp_path: Path) -> None:
    launch = a_launch("--fault-hang-after-ready", "0")
    async with running_node(tmp_path) as node, trio.open_nursery() as nursery:
        await node.ready(launch)
        stream = Stream(launch.places[0].port, tokens=4)
        nursery.start_soon(trio.to_thread.run_sync, stream.read)
        await wait_until(lambda: metric(launch.places[0].port, "requests_running") > 0, "the request hangs")
        node.ask_to_stop(launch, in_flight_s=600.0)
        await wait_until(lambda: "in flight" in node.reason(launch), "it waits")
        node.ask_to_stop(launch, in_flight_s=0.0)
        await wait_until(lambda: "SIGTERM was sent" in node.reason(launch), "it is told to stop")
        status = node.status(launch)
        assert status is not None
        os.kill(status.pid, signal.SIGKILL)
        await wait_until(lambda: node.status(launch) is None, "the shard gone")


async def test_a_stop_wins_in_every_phase(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        for generation, phase in enumerate((ShardPhase.PREPARING, ShardPhase.STARTING, READY), start=1):
            launch = a_launch("--load-time", "0.2", generation=generation)
            node.run(launch)
            await node.wait(launch, phase)
            await node.stop(launch)
            assert marked_processes(tmp_path) == ()
        assert not any(status.failure for statuses in node.seen for status in statuses)


async def test_what_died_before_it_was_told_to_stop_has_failed(tmp_path: Path) -> None:
    """Though the agent hears of both in one moment: its death may be why the others were stopped."""
    launch = a_launch()
    async with running_node(tmp_path) as node:
        pid = (await node.ready(launch)).pid
        os.kill(pid, signal.SIGKILL)
        cluster.wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its end")  # the agent's loop stands still
        await node.stop(launch)
        failures = [status.failure for statuses in node.seen for status in statuses if status.failure is not None]
        assert [each.exit for each in failures[-1:]] == ["signal 9 (SIGKILL)"]
        log = await node.runtime.read_log(ReadLog(1, launch.replica, 0, first_failure=True))
        assert "engine ended: signal 9" in log.text


async def test_what_is_only_prepared_and_told_to_stop_is_not_told_as_started(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path) as node:
        node.run(launch, stage=Stage.PREPARE)
        await node.wait(launch, ShardPhase.PREPARED)
        await node.stop(launch)
        assert node.phases(launch)[-2:] == [ShardPhase.PREPARED, ShardPhase.STOPPING]


async def test_a_disk_that_takes_nothing_fails_the_launch_with_the_reason(tmp_path: Path) -> None:
    launch = a_launch()
    (tmp_path / "shards").write_text("no directory")
    async with running_node(tmp_path) as node:
        node.run(launch)
        status = await node.wait(launch, FAILED)
        assert status.failure is not None
        assert "shards" in status.failure.reason


async def test_a_worker_that_must_go_first_is_ready_when_its_own_tree_listens(tmp_path: Path) -> None:
    """E21: for engines whose head connects to workers; their port is never connected to."""
    held = tmp_path / "held"
    held.touch()
    listens = f'{sys.executable} -c \'import socket,sys,time; s=socket.create_server(("",int(sys.argv[1])))'
    waits = f"while [ -e {held} ]; do sleep 0.05; done"
    sim = script(tmp_path / "sim", f'( {waits}; exec {listens}; time.sleep(60)\' $8 ) &\nexec {SIM} "$@"')
    launch = a_launch(nodes=2)
    async with running_node(tmp_path / "agent", sim=sim) as node:
        node.run(launch, 1, Stage.PREPARE)
        await node.wait(launch, ShardPhase.PREPARED, rank=1)
        attempt = node.runtime.shards._attempts[launch.replica, 1, 1]
        attempt.kept = evolve(attempt.kept, workers_first=True)
        node.run(launch, 1)
        await wait_until(lambda: "nothing listens" in node.reason(launch, 1), "nothing")
        held.unlink()
        await node.wait(launch, READY, rank=1)


async def test_output_that_the_disk_does_not_take_is_told_and_the_engine_goes_on(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path) as node:
        node.run(launch, stage=Stage.PREPARE)
        await node.wait(launch, ShardPhase.PREPARED)
        logs = node.runtime.shards._attempts[launch.replica, 0, 1].directory / "logs"
        logs.write_text("no directory")
        await node.ready(launch)
        await wait_until(lambda: "bytes of output were lost" in node.reason(launch), "the loss told")
        assert "200" in ask_engine(launch.places[0].port)

"""Gateways that end, by their operator's word or without any: what they have, they answer."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.demo.users import ask_model
from llmgw_core.testing.cluster import END_S, Cluster, Daemon, Gateway, running_cluster, wait_until
from llmgw_core.testing.sim_model import Hold, sim_model, streamed


@define(eq=False)
class Fleet:
    """One node, with one replica of a model `small`."""

    cluster: Cluster
    control: Daemon
    gateway: Gateway
    key: str
    tokens: Hold


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Fleet]:
    tokens = Hold(tmp_path / "tokens", "tokens")
    with running_cluster(tmp_path) as cluster:
        control = cluster.start_control()
        cluster.start_agent("n1", gpus=1)
        gateway = cluster.start_gateway("gw", "--workers", "2")
        cluster.apply(sim_model("small", *tokens.flags, engine_key=True), "--wait")
        gateway.daemon.wait_for("INFO connected ")
        fleet = Fleet(cluster, control, gateway, cluster.create_key("users"), tokens)
        wait_for_routes(fleet, "gw")  # the command waits for them, too, but not for long
        yield fleet


def children_of(gateway: Gateway) -> list[int]:
    supervisor = gateway.daemon.process.pid
    return [int(each) for each in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()]


def ignores(pid: int, number: signal.Signals) -> bool:
    (mask,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def wait_for_routes(fleet: Fleet, name: str) -> None:
    """Until every worker of that gateway has the latest ones, and all keys."""

    def has_them() -> bool:
        found = [each for each in fleet.cluster.ask("gateways") if each["name"] == name]
        return bool(found) and all(each["version"] == each["current"] for each in found)

    wait_until(has_them, f"{name} has routes")


def test_a_process_of_a_gateway_that_is_told_to_stop_as_soon_as_it_is_there_stops_in_order(tmp_path: Path) -> None:
    """What has connected to it by then is answered, not reset."""
    with running_cluster(tmp_path) as cluster:
        gateway = cluster.start_gateway("gw", "--workers", "2")
        begun = wait_until(lambda: children_of(gateway), "its first children", every_s=0.001)
        for pid in begun:
            os.kill(pid, signal.SIGTERM)
        gateway.daemon.wait_for("ended, and is started again", times=len(begun))
        assert all("exit=0" in each for each in gateway.daemon.lines("ended, and is started again"))


def test_a_gateway_without_its_supervisor_stops(fleet: Fleet) -> None:
    assert connects(fleet.gateway.address)
    fleet.gateway.daemon.kill()
    wait_until(lambda: not connects(fleet.gateway.address), "its children have ended", every_s=0.1)


def test_a_gateway_serves_by_its_last_routes_before_there_is_a_control_plane(fleet: Fleet) -> None:
    fleet.control.kill()
    fleet.gateway.daemon.signal(signal.SIGTERM)
    fleet.gateway.daemon.process.wait(END_S)
    again = fleet.cluster.start_gateway("gw", "--workers", "2")
    assert ask_model(again.address, "small", fleet.key), "the first request already"
    assert heard_at(again, fleet.key) is None
    fleet.cluster.start_control()
    again.daemon.wait_for("INFO connected ")
    wait_until(lambda: heard_at(again, fleet.key), "metrics say so")


def heard_at(gateway: Gateway, key: str) -> float | None:
    """When the control plane was, as the metrics say."""
    with closing(http.client.HTTPConnection(gateway.address, timeout=END_S)) as connection:
        connection.request("GET", "/metrics", headers={"x-api-key": key})
        lines = connection.getresponse().read().decode().splitlines()
    said = [line for line in lines if line.startswith("llmgw_gateway_control_plane_heard_timestamp_seconds ")]
    return float(said[0].split()[1]) if said else None


def test_a_control_plane_that_has_lost_its_store_takes_no_model_and_no_key_from_a_gateway(fleet: Fleet) -> None:
    fleet.control.kill()
    shutil.rmtree(fleet.cluster.state)
    fleet.cluster.start_control()
    fleet.gateway.daemon.wait_for("INFO connected ", times=2)
    fleet.cluster.wait_for_state("n1", "online")
    assert fleet.cluster.ctl("models", "--json") == "[]\n"
    (gateway,) = json.loads(fleet.cluster.ctl("gateways", "--json"))
    assert (gateway["state"], gateway["current"]) == ("connected", 0)
    assert ask_model(fleet.gateway.address, "small", fleet.key)


def connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=END_S).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_gateway_that_ends_answers_what_it_has_and_takes_nothing_new(fleet: Fleet, how: signal.Signals) -> None:
    """Of one whose supervisor is killed, the workers do."""
    body = {"model": "small", "max_tokens": 80, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    fleet.tokens.take()
    with closing(http.client.HTTPConnection(fleet.gateway.address, timeout=END_S)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {fleet.key}"})
        answer = connection.getresponse()
        fleet.gateway.daemon.signal(how)
        wait_until(lambda: not connects(fleet.gateway.address), "connections are refused")
        fleet.tokens.release()
        assert len([piece for piece in streamed(answer) if piece]) == 80
    fleet.gateway.daemon.process.wait(END_S)
    assert fleet.gateway.daemon.process.returncode == (0 if how is signal.SIGTERM else -how)


@pytest.mark.parametrize(
    ("workers", "number"),
    [("1", signal.SIGINT), ("2", signal.SIGINT), ("1", signal.SIGHUP), ("2", signal.SIGHUP)],
    ids=["Ctrl-C", "Ctrl-C, two workers", "closed", "closed, two workers"],
)
def test_a_gateway_in_a_terminal_answers_what_it_has(fleet: Fleet, workers: str, number: signal.Signals) -> None:
    """The terminal sends the signal to each of its processes."""
    gateway = fleet.cluster.start_gateway("other", "--workers", workers, prefix=("setsid",))
    wait_for_routes(fleet, "other")
    if workers == "2":
        assert all(ignores(each, signal.SIGTTOU) for each in children_of(gateway)), "as after `stty tostop`"
    body = {"model": "small", "max_tokens": 80, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    fleet.tokens.take()
    with closing(http.client.HTTPConnection(gateway.address, timeout=END_S)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {fleet.key}"})
        answer = connection.getresponse()
        os.killpg(gateway.daemon.process.pid, number)
        wait_until(lambda: not connects(gateway.address), "connections are refused")
        if number is signal.SIGHUP:
            os.killpg(gateway.daemon.process.pid, number)  # its shell's, and the kernel's
        fleet.tokens.release()
        assert len([piece for piece in streamed(answer) if piece]) == 80
    gateway.daemon.process.wait(END_S)
    assert gateway.daemon.process.returncode == 0


def test_a_second_signal_that_comes_with_the_first_cuts_and_kills_nothing(fleet: Fleet) -> None:
    gateway = fleet.cluster.start_gateway("other", "--no-auth")
    wait_until(lambda: health(gateway)[0] == 200, "it has routes")
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        gateway.daemon.signal(number)
    gateway.daemon.process.wait(END_S)
    assert gateway.daemon.process.returncode == 0
    assert gateway.daemon.lines("INFO stopped")


def test_a_gateway_that_is_to_stop_says_so_and_takes_connections_for_a_while(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.start_control()
        cluster.apply("")
        gateway = cluster.start_gateway("gw", "--workers", "2", "--no-auth", "--stop-delay", "600")
        wait_until(lambda: health(gateway)[0] == 200, "it has routes")
        gateway.daemon.signal(signal.SIGTERM)
        # Each worker is told for itself, and whichever takes a connection answers it: asked until all of them say so.
        wait_until(lambda: {health(gateway) for _ in range(20)} == {(503, "stopping")}, "every worker says so")
        gateway.daemon.signal(signal.SIGTERM)
        gateway.daemon.process.wait(END_S)
        assert gateway.daemon.process.returncode == 0


def health(gateway: Gateway) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(gateway.address, timeout=END_S)) as connection:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, json.load(answer)["status"]

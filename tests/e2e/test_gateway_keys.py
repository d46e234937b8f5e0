"""A key is good, or refused, at every worker of every gateway when the command that says so has ended."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.cli.keys import HEAR_S
from llmgw_core.testing.cluster import DEADLINE_S, END_S, Cluster, Daemon, Gateway, running_cluster, wait_until

MANY = 20
"""Connections of which each worker gets some."""
PATIENCE_S = 60.0
"""In place of a command's own, which a busy machine may exhaust."""


@define(eq=False)
class Fleet:
    cluster: Cluster
    control: Daemon
    gateway: Gateway

    def start_keys(self, *words: str, hear_s: float = PATIENCE_S) -> subprocess.Popen[str]:
        """`hear_s`: how long the command bears that gateways have not heard."""
        who = ("--server", str(self.cluster.server), "--identity", str(self.cluster.pki / "alice"))
        program = f"from llmgw_core.cli import keys, main; keys.HEAR_S = {hear_s}; main()"
        command = [sys.executable, "-c", program, "ctl", *who, "keys", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_looks(self) -> None:
        """Until the command has looked twice whether all gateways have heard, and looks again."""
        asked = "asked operator=alice what=gateways"
        self.control.wait_for(asked, times=2 + len(self.control.lines(asked)))

    @contextmanager
    def deaf_workers(self) -> Iterator[None]:
        supervisor = self.gateway.daemon.process.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        _, *workers = map(int, children)  # the first has the link
        for each in workers:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in workers:
                os.kill(each, signal.SIGCONT)

    def answers(self, key: str) -> set[int]:
        """The statuses that so many connections get."""
        return {self._status(key) for _ in range(MANY)}

    def _status(self, key: str) -> int:
        with closing(http.client.HTTPConnection(self.gateway.address, timeout=END_S)) as connection:
            connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {key}"})
            return connection.getresponse().status


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_cluster(tmp_path) as cluster:
        control = cluster.start_control()
        cluster.apply("")
        gateway = cluster.start_gateway("gw", "--workers", "2")
        wait_until(lambda: [each for each in cluster.ask("gateways") if each["version"]], "it has routes")
        yield Fleet(cluster, control, gateway)


def test_a_key_is_good_everywhere_when_it_was_made_and_nowhere_when_it_was_revoked(fleet: Fleet) -> None:
    with fleet.deaf_workers():
        making = fleet.start_keys("create", "ci")
        fleet.wait_for_looks()
    key, said = making.communicate(timeout=DEADLINE_S)
    assert "it is never shown again" in said.strip().splitlines()[-1]
    assert fleet.answers(key.strip()) == {200}
    revoking = fleet.start_keys("revoke", "ci")
    assert revoking.communicate(timeout=DEADLINE_S)[1] == ""
    assert revoking.returncode == 0
    assert fleet.answers(key.strip()) == {401}


def test_a_gateway_that_does_not_hear_of_a_key_is_named(fleet: Fleet) -> None:
    key = fleet.cluster.create_key("ci")
    with fleet.deaf_workers():
        revoking = fleet.start_keys("revoke", "ci", hear_s=HEAR_S)
        _, said = revoking.communicate(timeout=DEADLINE_S)
    assert revoking.returncode == 1
    assert "gw/" in said
    assert "has not heard of it and takes it until then" in said
    wait_until(lambda: fleet.answers(key) == {401}, "it has heard")


def test_gateways_that_come_back_are_waited_for(fleet: Fleet) -> None:
    """A control plane that has just started does not hear them yet."""
    fleet.control.kill()
    fleet.cluster.start_control()
    key, _ = fleet.start_keys("create", "ci").communicate(timeout=DEADLINE_S)
    assert fleet.answers(key.strip()) == {200}


def test_a_control_plane_that_hangs_is_not_waited_for(fleet: Fleet) -> None:
    with fleet.deaf_workers():
        making = fleet.start_keys("create", "ci", hear_s=3 * HEAR_S)  # it is to have looked before
        fleet.wait_for_looks()
        fleet.control.signal(signal.SIGSTOP)
        try:
            key, said = making.communicate(timeout=DEADLINE_S)
        finally:
            fleet.control.signal(signal.SIGCONT)
    assert making.returncode == 0
    assert key.startswith("sk-llmgw-")
    assert "not seen whether gateways have heard of it: " in said

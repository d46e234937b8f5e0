"""Engines ask for a key that only gateways have: it opens them, and it stands nowhere else."""

from __future__ import annotations

import http.client
import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import frozen

from llmgw_core.model.route import Target
from llmgw_core.testing.cluster import Cluster, Daemon, running_cluster, wait_until
from llmgw_core.testing.light_gateway import LightGateway, running_gateway
from llmgw_core.testing.sim_model import REQUEST_S, sim_model


@frozen
class Running:
    cluster: Cluster
    control: Daemon
    agent: Daemon
    gateway: LightGateway
    target: Target

    @property
    def key(self) -> str:
        return self.target.key


@pytest.fixture(name="running", scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_cluster(tmp_path_factory.mktemp("fleet")) as cluster:
        control = cluster.start_control()
        agent = cluster.start_agent("n1", gpus=1)
        cluster.apply(sim_model("m", engine_key=True), "--wait")
        with running_gateway(cluster) as gateway:
            (target,) = gateway.wait_for_targets("m/1")
            yield Running(cluster, control, agent, gateway, target)


def status(target: Target, key: str, model: str = "m") -> int:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 2})
    with closing(http.client.HTTPConnection(target.address, target.port, timeout=REQUEST_S)) as connection:
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_the_gateways_key_opens_the_engine_and_nothing_else_does(running: Running) -> None:
    assert len(running.key) == 43
    assert [status(running.target, key) for key in (running.key, "", "wrong")] == [200, 401, 401]


def test_no_process_and_no_log_shows_it(running: Running) -> None:
    for argv in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert running.key.encode() not in argv.read_bytes()
        except OSError:
            continue  # it has ended
    for log in (running.control.log, running.agent.log):
        assert running.key not in log.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("replica", "m/1", "--json"),
        ("replicas", "--json"),
        ("models", "--json"),
        ("explain", "m", "--json"),
        ("logs", "m/1"),
        ("events", "--json"),
        ("node", "n1", "--json"),
        ("gateways", "--json"),
        ("rollout", "m", "--json"),
    ],
)
def test_no_command_of_an_operator_shows_it(running: Running, words: tuple[str, ...]) -> None:
    assert running.key not in running.cluster.ctl(*words)


def look_into(path: Path) -> tuple[bytes, int]:
    """A file's content and mode; nothing of what is no file, or is gone by now: others work there meanwhile."""
    try:
        return (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) if path.is_file() else (b"", 0)
    except FileNotFoundError:
        return b"", 0


def test_the_files_that_have_it_are_for_their_owner_alone(running: Running) -> None:
    running.cluster.ctl("backup", str(running.cluster.directory / "backup.db"))
    found = []
    for directory, _, names in os.walk(running.cluster.directory):
        for path in (Path(directory, name) for name in names):
            content, mode = look_into(path)
            if running.key.encode() in content:
                found.append(path.name)
                assert mode == 0o600, path
    assert "shard.json" in found, "the agent keeps it"
    assert any(name.startswith("control.db") for name in found), "and so does the control plane"


def test_an_agent_that_finds_the_engine_again_knows_its_key(running: Running) -> None:
    before = running.cluster.replica("m/1")
    running.agent.kill()
    agent = running.cluster.start_agent("n1", gpus=1)
    agent.wait_for("INFO connected ")
    running.cluster.wait_for_state("n1", "online")
    wait_until(lambda: running.cluster.replica("m/1")["shards"][0]["pid"], "the engine found again")
    after = running.cluster.wait_for_replica("m/1")
    assert (after["generation"], after["address"]) == (before["generation"], before["address"])
    assert running.gateway.targets("m/1") == [running.target]
    assert status(running.target, running.key) == 200


def test_a_users_key_is_alone_on_standard_output_and_is_listed_without_itself(running: Running) -> None:
    key = running.cluster.ctl("keys", "create", "ci", "--expires", "30d", "--model", "m", "--rpm", "60").strip()
    assert key.startswith("sk-llmgw-")
    listed = running.cluster.ctl("keys", "list")
    assert key not in listed
    (line,) = [each for each in listed.splitlines() if " ci " in each]
    assert " live " in line
    assert line.split()[-3:] == ["m", "60", "-"]
    running.cluster.ask("revoke-key", key="ci")
    assert [each["state"] for each in json.loads(running.cluster.ctl("keys", "list", "--json"))] == ["revoked"]
    gateway = next(each for each in running.cluster.ctl("gateways").splitlines() if each.startswith("edge/"))
    assert " connected " in gateway


def test_a_profile_without_a_key_is_open_to_all(running: Running) -> None:
    other = sim_model("other", gpus_per_node=0, engine_key=False)
    running.cluster.apply(sim_model("m", engine_key=True) + other, "--wait")
    (target,) = running.gateway.wait_for_targets("other/1")
    assert target.key == ""
    assert status(target, "", "other") == 200

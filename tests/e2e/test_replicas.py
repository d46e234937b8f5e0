"""From a catalog to answers, with the commands that an operator types: real control plane, real agents, sim engines."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.testing.cluster import DEADLINE_S, END_S, LLMGW, Cluster, running_cluster, wait_until
from llmgw_core.testing.sim_model import Hold, complete, sim_model

NODES = {"a1": "ib-a:mlx5_0", "a2": "ib-a:mlx5_1", "b1": "ib-b"}
HCAS = {"a1": "=mlx5_0:1", "a2": "=mlx5_1:1"}
"""Of each node on the fabric; the second `=` asks NCCL for an exact match."""
GPUS = 4


@pytest.fixture(scope="module", name="fleet")
def _fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("fleet")) as cluster:
        cluster.start_control()
        for name, fabric in NODES.items():
            cluster.start_agent(name, gpus=GPUS, fabric=fabric)
        cluster.wait_until_looked(*NODES)
        yield cluster


@pytest.fixture(name="cluster")
def _cluster(fleet: Cluster) -> Iterator[Cluster]:
    """The module's, with nothing on it before and after."""
    yield fleet
    fleet.apply("")
    fleet.wait_until_gone()


def environment(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_text()
    return dict(variable.split("=", 1) for variable in text.split("\0") if variable)


def refusal(cluster: Cluster, *words: str, code: int = 1) -> str:
    asked = [LLMGW, "ctl", "--server", str(cluster.server), "--identity", str(cluster.pki / "alice"), *words]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    return done.stderr


def apply_and_wait(cluster: Cluster, catalog: Path, loading: Hold) -> list[str]:
    """What `apply --wait` says: of what it waits for, before that goes on to load."""
    told = cluster.directory / "told"
    who = ("--server", str(cluster.server), "--identity", str(cluster.pki / "alice"))
    with told.open("wb") as output:
        applying = subprocess.Popen([LLMGW, "ctl", *who, "apply", str(catalog), "--wait"], stdout=output)
    try:
        wait_until(lambda: "  embed/1 " in told.read_text(), "it says what it waits for")
        loading.release()
        assert applying.wait(DEADLINE_S) == 0
    finally:
        applying.kill()
        applying.wait(END_S)
    return told.read_text().splitlines()


def test_from_a_catalog_to_answers_and_back(cluster: Cluster) -> None:
    loading = Hold(cluster.directory / "loading", "loading")
    text = sim_model("chat", labels={"team": "red"}) + sim_model("embed", *loading.flags, replicas=2)
    catalog = cluster.directory / "planned.toml"
    catalog.write_text(text)
    planned = cluster.ctl("plan", str(catalog)).splitlines()
    assert planned[:2] == ["  new model chat: 1 replica", "  new model embed: 2 replicas"]
    assert [line.split(":")[0] for line in planned[2:]] == ["  start chat/1", "  start embed/1", "  start embed/2"]
    assert "no model is desired" in cluster.ctl("models")
    assert "no replica is wanted" in cluster.ctl("replicas")

    loading.take()
    applied = apply_and_wait(cluster, catalog, loading)
    assert applied[1:6] == planned
    assert applied[-1] == "all replicas are ready"
    assert cluster.ctl("plan", str(catalog)) == "nothing changes\n"

    header, *rows = cluster.ctl("models").splitlines()
    assert header.split() == ["MODEL", "READY", "PROFILES", "SOURCE", "LABELS", "TROUBLE"]
    assert [row.split() for row in rows] == [
        ["chat", "1/1", "chat", "sim/chat", "team=red"],
        ["embed", "2/2", "embed", "sim/embed", "-"],
    ]
    labelled = json.loads(cluster.ctl("models", "--label", "team=red", "--json"))
    assert [each["name"] for each in labelled] == ["chat"]
    assert [row.split()[:3] for row in cluster.ctl("replicas", "--model", "embed").splitlines()[1:]] == [
        ["embed/1", "ready", "1"],
        ["embed/2", "ready", "1"],
    ]
    replicas = json.loads(cluster.ctl("replicas", "--json"))
    assert complete(replicas[0]["address"], "chat")
    assert "chat: 1 of 1 replicas are ready" in cluster.ctl("explain", "chat")

    assert cluster.ctl("scale", "embed", "3") == "embed: 3 wanted, until the next apply\n"
    cluster.wait_for_replica("embed/3")
    assert "3/3 (scaled)" in cluster.ctl("models")
    cluster.ctl("scale", "embed", "0")
    wait_until(lambda: list(cluster.replicas()) == ["chat/1"], "the embed replicas gone")
    kinds = {event["kind"] for event in cluster.events()}
    assert {"catalog applied", "model scaled", "replica placed", "replica ready", "replica stopped"} <= kinds
    stopped = [event["reason"] for event in cluster.events("replica stopping")]
    assert "embed/1: 0 replicas of embed are enough" in stopped
    assert "model removed embed" not in cluster.ctl("plan", str(catalog))
    assert "scaled embed: from 0 to 2 replicas" in cluster.ctl("plan", str(catalog))

    cluster.offer(text)
    cluster.apply(text)
    placed = [cluster.wait_for_replica(id)["nodes"] for id in ("embed/1", "embed/2")]
    assert placed[0] != placed[1], "of one model apart"


def test_mistakes_come_all_at_once_with_their_lines_and_change_nothing(cluster: Cluster) -> None:
    catalog = cluster.directory / "wrong.toml"
    catalog.write_text(
        sim_model("m")
        + '[models.n]\nsource = "sim/n"\nprofiles = ["absent"]\nreplicas = "two"\n[profiles.odd]\nengine = "sim"\n'
        + "nodez = 2\n"
    )
    lines = [number for number, line in enumerate(catalog.read_text().splitlines(), 1) if "two" in line]
    for command in ("apply", "plan"):
        said = refusal(cluster, command, str(catalog), code=2)
        assert f"{catalog}:{lines[0]}: models.n.replicas" in said
        assert f"{catalog}:{lines[0] + 3}: profiles.odd: unknown key nodez" in said
    assert "no model is desired" in cluster.ctl("models")
    catalog.write_text("[models.m\n")
    assert f"{catalog}:1" in refusal(cluster, "apply", str(catalog), code=2)
    assert "No such file" in refusal(cluster, "apply", "/none/such.toml", code=2)


def test_what_is_not_there_is_said(cluster: Cluster) -> None:
    cluster.apply(sim_model("m"))
    for words in (("scale", "n", "1"), ("explain", "n")):
        assert re.search(r"the catalog has no model '?n'? \(there are: m\)", refusal(cluster, *words, code=2))
    for words in (("replica", "m/7"), ("logs", "m/7")):
        assert "no replica 'm/7' has ever been here" in refusal(cluster, *words, code=2)
    cluster.wait_for_replica("m/1")
    assert "m/1 has no rank 3: it has 0 to 0" in refusal(cluster, "logs", "m/1", "--rank", "3", code=2)
    assert "m/1 has not failed, as far as is remembered" in refusal(cluster, "logs", "m/1", "--first-failure", code=2)


def test_a_group_serves_at_its_head_with_the_gpus_and_adapters_of_each_node(cluster: Cluster) -> None:
    cluster.apply(sim_model("big", nodes=2, gpus_per_node=3, tensor_parallel=6))
    replica = cluster.wait_for_replica("big/1")
    assert replica["nodes"] == ["a1", "a2"], "the only fabric with two nodes"
    assert complete(replica["address"], "big")
    shown = cluster.replica("big/1")
    head, worker = shown["shards"]
    with pytest.raises(OSError, match="refused"):
        complete(f"127.0.0.1:{worker['port']}", "big")
    for shard in (head, worker):
        variables = environment(shard["pid"])
        gpus = json.loads(cluster.ctl("node", shard["node"], "--json"))["facts"]["gpus"]["gpus"]
        assert variables["CUDA_VISIBLE_DEVICES"].split(",") == shard["gpus"]
        assert len(set(shard["gpus"]) & {gpu["uuid"] for gpu in gpus}) == 3
        assert variables["NCCL_IB_HCA"] == HCAS[shard["node"]]
        assert variables["LLMGW_SHARD"] == f"big/1#{shard['rank']}@1"
        assert Path(f"/proc/{shard['pid']}/cmdline").read_text().split("\0")[1:-1] == shard["argv"]
        assert shown["rendezvous"] == shard["argv"][shard["argv"].index("--dist-init-addr") + 1]

    told = cluster.ctl("replica", "big/1")
    assert "big/1: ready, generation 1, profile big" in told
    assert f"shard 1     ready on a2, port {worker['port']}" in told
    wait_until(lambda: "rank 0: ready" in cluster.ctl("logs", "big/1"), "its log")
    assert "rank 0" not in cluster.ctl("logs", "big/1", "--rank", "1").replace("of rank 0", "")
    assert len(cluster.ctl("logs", "big/1", "--lines", "1").splitlines()) == 1


def test_logs_are_followed_into_the_next_attempt(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(sim_model("m"))
    replica = cluster.wait_for_replica("m/1")
    who = ("--server", str(cluster.server), "--identity", str(cluster.pki / "alice"))
    told, errors = tmp_path / "told", tmp_path / "errors"
    with told.open("wb") as output, errors.open("wb") as error:
        follow = subprocess.Popen([LLMGW, "ctl", *who, "logs", "m/1", "--follow"], stdout=output, stderr=error)
    try:
        wait_until(lambda: "rank 0: ready" in told.read_text(), "the first attempt's log")
        complete(replica["address"], "m")
        wait_until(lambda: "chat/completions" in told.read_text(), "the request")
        cluster.ctl("scale", "m", "0")
        wait_until(lambda: "m/1 runs nowhere now" in errors.read_text(), "that it is gone")
        cluster.ctl("scale", "m", "1")
        wait_until(lambda: told.read_text().count("rank 0: ready") == 2, "the second attempt's log")
        assert errors.read_text().count("m/1 runs nowhere now") == 1
    finally:
        follow.send_signal(signal.SIGINT)
        assert follow.wait(END_S) == 130


def test_a_model_without_room_says_why_with_numbers_and_comes_up_as_soon_as_there_is_room(cluster: Cluster) -> None:
    text = sim_model("wide", gpus_per_node=6) + sim_model("pair", nodes=2, gpus_per_node=4)
    cluster.offer(text)
    cluster.apply(text)
    cluster.wait_for_replica("pair/1")
    wide = cluster.wait_for_replica("wide/1", "pending")
    assert wide["reason"] == (
        "needs 6 free GPUs on one node; a1 has no free GPUs of 4, a2 has no free GPUs of 4, b1 has 4 free GPUs of 4"
    )
    explained = cluster.ctl("explain", "wide").splitlines()
    assert explained[0] == "wide: 0 of 1 replicas are ready"
    assert "  b1 has 4 free GPUs of 4" in explained
    assert "needs 2 nodes with 4 free GPUs on one fabric" in cluster.ctl("explain", "pair")
    joined = cluster.start_agent("big", gpus=8, fabric="ib-b")
    try:
        assert cluster.wait_for_replica("wide/1")["nodes"] == ["big"]
        cluster.ctl("scale", "wide", "0")
        wait_until(lambda: "wide/1" not in cluster.replicas(), "wide gone")
    finally:
        joined.kill()


def test_weights_that_a_node_has_not_keep_the_model_off_it(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    with running_cluster(tmp_path) as cluster:
        cluster.start_control()
        cluster.start_agent("has", gpus=4)
        wait_until(lambda: len(cluster.nodes()) == 1, "the node")
        text = sim_model("m", source=str(weights), replicas=2)
        cluster.apply(text)
        waiting = wait_until(lambda: cluster.wait_for_replica("m/1", "pending")["reason"], "a reason")
        assert waiting
        wait_until(lambda: str(weights) in cluster.ctl("explain", "m"), "the weights are told")
        (weights / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
        if os.geteuid() == 0 and shutil.which("unshare"):
            hidden = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {weights} && exec "$@"', "sh")
            cluster.start_agent("hasnot", gpus=8, prefix=hidden)
            wait_until(lambda: len(cluster.nodes()) == 2, "the other node")
        cluster.apply(text)  # whoever applies again has it looked at again at once
        for id in ("m/1", "m/2"):
            assert cluster.wait_for_replica(id)["nodes"] == ["has"]
        if len(cluster.nodes()) == 2:
            lacks = re.compile(rf"hasnot .*{re.escape(str(weights))}")
            wait_until(lambda: lacks.search(cluster.ctl("explain", "m")), "what the other node lacks")
        cluster.apply("")
        cluster.wait_until_gone()


def test_a_flag_that_the_engine_refuses_is_named_and_the_next_profile_is_taken(cluster: Cluster) -> None:
    bad = sim_model("bad", "--no-such-flag")
    fallback = sim_model("good", "--no-such-flag", more_profiles={"plain": {"gpus_per_node": 1}})
    cluster.apply(bad + fallback)
    assert cluster.wait_for_replica("good/1")["profile"] == "plain"
    wait_until(lambda: "--no-such-flag" in cluster.wait_for_replica("bad/1", "pending")["reason"], "the reason")
    assert "--no-such-flag" in cluster.ctl("explain", "bad")
    assert "--no-such-flag" in cluster.ctl("models")
    assert cluster.shard_processes("bad/") == ()


SERVER = [sys.executable, "-u", "-m", "http.server", "{port}", "--bind", "127.0.0.1"]


def test_sidecars_stand_beside_the_engine_and_fail_it_by_their_name(cluster: Cluster) -> None:
    web = {"web": {"command": SERVER, "ready_path": "/"}}
    broken = {"licence": {"command": ["sh", "-c", "echo no licence; exit 3"], "ready_file": "{directory}/never"}}
    cluster.apply(
        sim_model("beside", "--context-length", "{web.port}", sidecars=web, env={"WEB": "at {web.port}"})
        + sim_model("broken", sidecars=broken)
    )
    cluster.wait_for_replica("beside/1")
    (shard,) = cluster.replica("beside/1")["shards"]
    port = shard["argv"][-1]
    assert environment(shard["pid"])["WEB"] == f"at {port}"
    names = {each.name for each in cluster.shard_processes("beside/1#0@1")}
    assert len(cluster.shard_processes("beside/1#0@1")) == 3, names
    assert "web started" in cluster.ctl("logs", "beside/1")
    failed = cluster.wait_for_replica("broken/1", "failed")
    assert "sidecar licence ended before it was ready: exit code 3; again in" in failed["reason"]
    assert "| no licence" in cluster.ctl("replica", "broken/1")
    assert "no licence" in cluster.ctl("logs", "broken/1", "--first-failure")

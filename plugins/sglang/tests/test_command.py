from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from llmgw_core.engine import (
    Endpoint,
    Flag,
    FlagTable,
    Hca,
    Parallel,
    ReplicaSpec,
    Secret,
    Settings,
    Slot,
    Speculative,
)
from llmgw_engine_sglang.command import build_command
from llmgw_engine_sglang.refusals import refusals

MODULE = ("/opt/sglang/bin/python3", "-m", "sglang.launch_server")


def replica(nodes: int = 1, gpus: int = 8, executable: tuple[str, ...] = MODULE, **fields: Any) -> ReplicaSpec:
    slots = tuple(
        Slot(
            executable=executable,
            listen=Endpoint("0.0.0.0", 18000 + rank),
            address=f"10.0.0.{rank + 1}",
            directory=f"/run/shard-{rank}",
            interface="ens1f0",
            gpus=tuple(f"GPU-{rank}-{index}" for index in range(gpus)),
            hcas=(Hca("mlx5_2"), Hca("mlx5_3")),
        )
        for rank in range(nodes)
    )
    meeting = Endpoint("10.0.0.1", 19000) if nodes > 1 else None
    return ReplicaSpec("m/0", "sglang", "/models/m", "m", slots, meeting, **fields)


def args(spec: ReplicaSpec, rank: int = 0, flags: FlagTable | None = None) -> list[str]:
    """The arguments after those that every shard has."""
    command = build_command(spec.shards[rank], flags)
    port = str(18000 + rank)
    always = ("--model-path", "/models/m", "--served-model-name", "m", "--host", "0.0.0.0", "--port", port)
    assert command.args[: len(always)] == always
    return list(command.args[len(always) :])


def table(*names: str) -> FlagTable:
    return FlagTable(tuple(Flag((name,)) for name in names))


QUIET = Settings(metrics=False)


def test_a_small_replica_gets_nothing_that_it_does_not_need() -> None:
    assert args(replica(gpus=1)) == ["--enable-metrics"]
    assert build_command(replica(gpus=1).shards[0], None).env == {"CUDA_VISIBLE_DEVICES": "GPU-0-0"}


def test_the_console_script_gets_its_subcommand_first() -> None:
    assert build_command(replica().shards[0], None).argv[:4] == (*MODULE, "--model-path")
    for script in ("sglang", "/opt/sglang/bin/sglang"):
        command = build_command(replica(executable=(script,)).shards[0], None)
        assert command.argv[:3] == (script, "serve", "--model-path")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(), "--enable-metrics"),
        (evolve(QUIET, context_length=4096, max_sequences=8), "--context-length 4096 --max-running-requests 8"),
        (evolve(QUIET, gpu_memory_fraction=0.85), "--mem-fraction-static 0.85"),
        (evolve(QUIET, dtype="half", quantization="awq"), "--dtype half --quantization awq"),
        (evolve(QUIET, kv_cache_dtype="fp8_e5m2"), "--kv-cache-dtype fp8_e5m2"),
        (evolve(QUIET, prefix_caching=True), ""),
        (evolve(QUIET, prefix_caching=False), "--disable-radix-cache"),
        (evolve(QUIET, chat_template="/t.jinja"), "--chat-template /t.jinja"),
        (
            evolve(QUIET, tool_call_parser="qwen25", reasoning_parser="qwen3"),
            "--tool-call-parser qwen25 --reasoning-parser qwen3",
        ),
        (evolve(QUIET, trust_remote_code=True), "--trust-remote-code"),
        (
            evolve(QUIET, speculative=Speculative("EAGLE3", 3, "/draft")),
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path /draft --speculative-num-steps 3"
            " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
        ),
        (
            evolve(QUIET, speculative=Speculative("NGRAM", 8)),
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8",
        ),
    ],
)
def test_settings_become_flags(settings: Settings, expected: str) -> None:
    assert args(replica(settings=settings)) == expected.split()


@pytest.mark.parametrize("flags", [None, table("--config")])
def test_the_key_stands_in_a_file_that_only_its_owner_reads(flags: FlagTable | None) -> None:
    command = build_command(replica(api_key=Secret('k"3y')).shards[0], flags)
    (file,) = command.files
    assert command.args[-2:] == ("--config", file.path)
    assert file.path == "/run/shard-0/sglang.yaml"
    assert isinstance(file.content, Secret)
    assert json.loads(file.content.reveal()) == {"api-key": 'k"3y'}
    assert file.mode == 0o600
    assert "k" + '"3y' not in " ".join(command.argv)


def test_a_version_without_config_files_gets_the_key_as_an_argument() -> None:
    command = build_command(replica(api_key=Secret("k3y")).shards[0], table("--api-key"))
    assert command.args[-2:] == ("--api-key", "k3y")
    assert command.files == ()


MEETING = "--dist-init-addr 10.0.0.1:19000 --nnodes 2 --node-rank"


@pytest.mark.parametrize(
    ("nodes", "gpus", "parallel", "flags", "expected"),
    [
        (1, 8, Parallel(tensor=4, data=2), None, "--tp-size 4 --dp-size 2"),
        (1, 0, Parallel(tensor=8, data=8), None, "--tp-size 8 --dp-size 8"),
        (1, 8, Parallel(tensor=8, data=8), None, "--tp-size 8 --dp-size 8 --enable-dp-attention"),
        (1, 8, Parallel(tensor=8, data=8), table("--attn-dp-size"), "--tp-size 8 --attn-dp-size 8"),
        (2, 8, Parallel(tensor=16), None, f"--tp-size 16 {MEETING} 1"),
        (2, 8, Parallel(8, 2, expert=8), None, f"--tp-size 8 --pp-size 2 --ep-size 8 {MEETING} 1"),
        (2, 8, Parallel(16, data=4), None, f"--tp-size 16 --dp-size 4 --enable-dp-attention {MEETING} 1"),
        (2, 8, Parallel(16, data=4), table("--attn-dp-size"), f"--tp-size 16 --attn-dp-size 4 {MEETING} 1"),
        (2, 8, Parallel(16, data=4), table("--dp"), f"--tp-size 16 --dp-size 4 --enable-dp-attention {MEETING} 1"),
    ],
)
def test_a_replica_is_divided(
    nodes: int, gpus: int, parallel: Parallel, flags: FlagTable | None, expected: str
) -> None:
    spec = replica(nodes, gpus, parallel=parallel, settings=QUIET)
    assert refusals(spec) == ()
    assert args(spec, nodes - 1, flags) == expected.split()


def test_an_ipv6_meeting_point_is_bracketed() -> None:
    spec = evolve(replica(2, parallel=Parallel(tensor=2)), rendezvous=Endpoint("fd00::1", 19000))
    assert "[fd00::1]:19000" in args(spec)


def test_a_group_uses_exactly_its_own_adapters_and_address() -> None:
    spec = replica(2, gpus=1, parallel=Parallel(tensor=2), extra_env={"NCCL_DEBUG": "INFO"})
    assert build_command(spec.shards[1], None).env == {
        "NCCL_IB_HCA": "=mlx5_2:1,mlx5_3:1",
        "NCCL_SOCKET_IFNAME": "=ens1f0",
        "GLOO_SOCKET_IFNAME": "ens1f0",
        "SGLANG_HOST_IP": "10.0.0.2",
        "CUDA_VISIBLE_DEVICES": "GPU-1-0",
        "NCCL_DEBUG": "INFO",
    }


def test_the_head_is_stopped_first_and_may_drain_while_workers_are_killed_soon() -> None:
    head, worker = (build_command(shard, None).stop for shard in replica(2, parallel=Parallel(tensor=2)).shards)
    assert head.head_first
    assert worker.head_first
    assert head.drains
    assert head.steps[0].wait_s > worker.steps[0].wait_s


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replica(2, parallel=Parallel(data=2)), "tensor 1 x pipeline 1 = 1 does not divide over 2 nodes"),
        (replica(2, parallel=Parallel(tensor=4, data=3)), "tensor 4 is no multiple of data 3"),
        (replica(parallel=Parallel(tensor=4, expert=3)), "tensor 4 is no multiple of expert 3"),
        (evolve(replica(), served_name="m:latest"), "colon: 'm:latest'"),
        (evolve(replica(), source="--m"), "'--m' would be read as a flag"),
        (replica(api_key=Secret("k"), extra_args=("--config=/a.yaml",)), "an API key goes by --config"),
    ],
)
def test_what_sglang_cannot_run_is_refused_with_the_numbers(spec: ReplicaSpec, said: str) -> None:
    assert any(said in reason for reason in refusals(spec))

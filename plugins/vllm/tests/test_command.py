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
    StopStep,
)
from llmgw_engine_vllm.command import build_command
from llmgw_engine_vllm.refusals import refusals


def replica(nodes: int = 1, gpus: int = 8, **fields: Any) -> ReplicaSpec:
    slots = tuple(
        Slot(
            executable=("/opt/vllm/bin/vllm",),
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
    return ReplicaSpec("m/0", "vllm", "/models/m", "m", slots, meeting, **fields)


def args(spec: ReplicaSpec, rank: int = 0, flags: FlagTable | None = None) -> list[str]:
    """The arguments after those that every shard has."""
    command = build_command(spec.shards[rank], flags)
    port = str(18000 + rank)
    always = ("serve", "/models/m", "--served-model-name", "m", "--host", "0.0.0.0", "--port", port)
    assert command.args[: len(always)] == always
    return list(command.args[len(always) :])


def words(text: str) -> list[str]:
    return text.split()


def test_a_small_replica_gets_the_model_first_and_nothing_that_it_does_not_need() -> None:
    command = build_command(replica(gpus=1).shards[0], None)
    assert command.argv[:3] == ("/opt/vllm/bin/vllm", "serve", "/models/m")
    assert args(replica(gpus=1)) == []
    assert command.env == {"CUDA_VISIBLE_DEVICES": "GPU-0-0"}
    assert "VLLM_PORT" in command.unset_env


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(context_length=4096, max_sequences=8), "--max-model-len 4096 --max-num-seqs 8"),
        (Settings(gpu_memory_fraction=0.85), "--gpu-memory-utilization 0.85"),
        (Settings(dtype="half", quantization="awq"), "--dtype half --quantization awq"),
        (Settings(kv_cache_dtype="fp8"), "--kv-cache-dtype fp8"),
        (Settings(prefix_caching=True), "--enable-prefix-caching"),
        (Settings(prefix_caching=False), "--no-enable-prefix-caching"),
        (Settings(chat_template="/t.jinja"), "--chat-template /t.jinja"),
        (Settings(tool_call_parser="hermes"), "--tool-call-parser hermes --enable-auto-tool-choice"),
        (Settings(reasoning_parser="qwen3"), "--reasoning-parser qwen3"),
        (Settings(trust_remote_code=True), "--trust-remote-code"),
        (Settings(metrics=False), ""),
    ],
)
def test_settings_become_flags(settings: Settings, expected: str) -> None:
    assert args(replica(settings=settings)) == words(expected)


def test_speculative_decoding_is_one_json_argument() -> None:
    flag, value = args(replica(settings=Settings(speculative=Speculative("eagle3", 3, "/d raft"))))
    assert flag == "--speculative-config"
    assert json.loads(value) == {"method": "eagle3", "num_speculative_tokens": 3, "model": "/d raft"}
    _, value = args(replica(settings=Settings(speculative=Speculative("ngram", 4))))
    assert json.loads(value) == {"method": "ngram", "num_speculative_tokens": 4}


def test_the_key_goes_by_environment_to_the_head_alone() -> None:
    spec = replica(2, api_key=Secret("k3y"), parallel=Parallel(tensor=16))
    head, worker = (build_command(shard, None) for shard in spec.shards)
    assert head.secret_env == {"VLLM_API_KEY": Secret("k3y")}
    assert worker.secret_env == {}
    assert not any("k3y" in word for word in (*head.argv, *worker.argv))
    assert "VLLM_API_KEY" in head.unset_env


MEETING = "--master-addr 10.0.0.1 --master-port 19000"


@pytest.mark.parametrize(
    ("nodes", "parallel", "head", "last"),
    [
        (1, Parallel(tensor=4, data=2), "--tensor-parallel-size 4 --data-parallel-size 2", None),
        (
            2,
            Parallel(tensor=16),
            f"--tensor-parallel-size 16 --nnodes 2 --node-rank 0 {MEETING}",
            f"--tensor-parallel-size 16 --nnodes 2 --node-rank 1 {MEETING} --headless",
        ),
        (
            2,
            Parallel(tensor=8, pipeline=2, expert=8),
            "--tensor-parallel-size 8 --pipeline-parallel-size 2 --enable-expert-parallel"
            f" --nnodes 2 --node-rank 0 {MEETING}",
            "--tensor-parallel-size 8 --pipeline-parallel-size 2 --enable-expert-parallel"
            f" --nnodes 2 --node-rank 1 {MEETING} --headless",
        ),
        (
            2,
            Parallel(tensor=4, data=4),
            "--tensor-parallel-size 4 --data-parallel-size 4 --data-parallel-address 10.0.0.1"
            " --data-parallel-rpc-port 19000 --data-parallel-size-local 2",
            "--tensor-parallel-size 4 --data-parallel-size 4 --data-parallel-address 10.0.0.1"
            " --data-parallel-rpc-port 19000 --data-parallel-size-local 2 --data-parallel-start-rank 2 --headless",
        ),
        (
            4,
            Parallel(tensor=16, data=2),
            f"--tensor-parallel-size 16 --data-parallel-size 2 --nnodes 4 --node-rank 0 {MEETING}"
            " --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 19001",
            f"--tensor-parallel-size 16 --data-parallel-size 2 --nnodes 4 --node-rank 3 {MEETING}"
            " --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 19001 --headless",
        ),
    ],
)
def test_a_replica_is_divided_over_nodes(nodes: int, parallel: Parallel, head: str, last: str | None) -> None:
    spec = replica(nodes, parallel=parallel)
    assert refusals(spec) == ()
    assert args(spec) == words(head)
    if last is not None:
        assert args(spec, nodes - 1) == words(last)


def test_a_group_uses_exactly_its_own_adapters_and_address() -> None:
    spec = replica(2, gpus=1, parallel=Parallel(tensor=2), extra_env={"NCCL_DEBUG": "INFO"})
    assert build_command(spec.shards[1], None).env == {
        "NCCL_IB_HCA": "=mlx5_2:1,mlx5_3:1",
        "NCCL_SOCKET_IFNAME": "=ens1f0",
        "GLOO_SOCKET_IFNAME": "ens1f0",
        "VLLM_HOST_IP": "10.0.0.2",
        "CUDA_VISIBLE_DEVICES": "GPU-1-0",
        "NCCL_DEBUG": "INFO",
    }


def test_a_drain_is_asked_for_only_where_it_is_documented() -> None:
    old, new = FlagTable((Flag(("--port",)),)), FlagTable((Flag(("--shutdown-timeout",)),))
    for flags in (None, old):
        command = build_command(replica().shards[0], flags)
        assert "--shutdown-timeout" not in command.args
        assert not command.stop.drains
        assert command.stop.steps == (StopStep("SIGTERM", 30.0),)
    command = build_command(replica().shards[0], new)
    assert command.args[-2:] == ("--shutdown-timeout", "120")
    assert command.stop.drains
    assert command.stop.steps == (StopStep("SIGTERM", 150.0),)
    assert command.stop.head_first


def test_the_operators_arguments_stand_last_and_whole() -> None:
    spec = replica(extra_args=("--hf-overrides", '{"rope_parameters": {"factor": 4.0}}'))
    assert build_command(spec.shards[0], None).argv[-1] == '{"rope_parameters": {"factor": 4.0}}'


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replica(2), "1 leaves some of its 2 nodes without work"),
        (replica(1, gpus=4, parallel=Parallel(tensor=4, data=2)), "= 8 exceeds its 4 GPUs"),
        (replica(3, parallel=Parallel(tensor=3, data=2)), "data 2 neither divides 3 nodes nor is a multiple"),
        (replica(parallel=Parallel(tensor=4, expert=2)), "expert 2 is neither 1 nor tensor x data = 4"),
        (replica(extra_env={"VLLM_PORT": "1"}), "VLLM_PORT in its environment"),
        (evolve(replica(), served_name="-m"), "'-m' would be read as a flag"),
        (
            evolve(replica(2, parallel=Parallel(data=2)), rendezvous=Endpoint("10.0.0.1", 65535)),
            "dist-init port 65535 leaves no next port",
        ),
    ],
)
def test_what_vllm_cannot_run_is_refused_with_the_numbers(spec: ReplicaSpec, said: str) -> None:
    (reason,) = refusals(spec)
    assert said in reason

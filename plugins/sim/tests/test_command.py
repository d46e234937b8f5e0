"""The commands of a simulated replica."""

from __future__ import annotations

import pytest
from attrs import evolve

from llmgw_core.engine import Parallel, Secret, Settings, Shard
from llmgw_engine_sim import llmgw_build_command, llmgw_read_version, llmgw_widest_specs
from llmgw_engine_sim.options import parse_options

HEAD, WORKER = llmgw_widest_specs()[0].shards


def single(settings: Settings | None = None) -> Shard:
    spec = llmgw_widest_specs()[0]
    alone = evolve(spec, slots=spec.slots[:1], rendezvous=None, parallel=Parallel())
    return evolve(alone, settings=settings or Settings()).shards[0]


def test_shards_differ_by_rank_and_place_only() -> None:
    head, worker = (llmgw_build_command(shard).args for shard in (HEAD, WORKER))

    differing = [(one, other) for one, other in zip(head, worker, strict=True) if one != other]

    assert differing == [("18000", "18001"), ("0", "1")]


def test_a_single_process_has_no_rendezvous() -> None:
    assert "--nnodes" not in llmgw_build_command(single()).args


@pytest.mark.parametrize("shard", [HEAD, WORKER, single()], ids=["head", "worker", "single"])
def test_the_program_accepts_its_command(shard: Shard) -> None:
    options = parse_options(llmgw_build_command(shard).args)

    assert options.node_rank == shard.node_rank
    assert options.port == shard.slot.listen.port
    assert options.served_model_name == shard.replica.served_name


@pytest.mark.parametrize(
    ("settings", "args"),
    [
        (Settings(context_length=100), ("--context-length", "100")),
        (Settings(max_sequences=2), ("--max-sequences", "2")),
        (Settings(metrics=False), ("--no-metrics",)),
        (Settings(), ("18000",)),
    ],
)
def test_a_setting_becomes_its_flag(settings: Settings, args: tuple[str, ...]) -> None:
    assert llmgw_build_command(single(settings)).args[-len(args) :] == args


def test_the_environment_names_gpus_adapters_and_interface() -> None:
    env = llmgw_build_command(WORKER).env

    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-10,GPU-11,GPU-12,GPU-13"
    assert env["NCCL_IB_HCA"] == "=mlx5_2:1,mlx5_3:1"  # the `=` asks for an exact match
    assert env["NCCL_SOCKET_IFNAME"] == "ib0"


def test_the_key_goes_by_environment_only() -> None:
    command = llmgw_build_command(HEAD)

    assert command.secret_env == {"SIM_API_KEY": Secret("widest")}
    assert "SIM_API_KEY" in command.unset_env


def test_the_head_stops_first_and_finishes_what_is_in_flight() -> None:
    assert llmgw_build_command(HEAD).stop.head_first
    assert llmgw_build_command(HEAD).stop.drains


@pytest.mark.parametrize(
    ("text", "version"), [("noise\nllmgw-sim 0.1.0\n", "0.1.0"), ("", None), ("llmgw-sim x", None)]
)
def test_the_version_is_read(text: str, version: str | None) -> None:
    assert llmgw_read_version(text) == version


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--model", "m", "--port", "65536"),
        ("--model", "m", "--port", "x"),
        ("--model", "m", "--nnodes", "0"),
        ("--model", "m", "--nnodes", "2"),
        ("--model", "m", "--node-rank", "1"),
        ("--model", "m", "--load-time", "nan"),
        ("--model", "m", "--nnodes", "2", "--dist-init-addr", "19000"),
        ("--model", "m", "--max-seq", "2"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(args)

    assert ended.value.code == 2
    assert "llmgw-sim: error: " in capsys.readouterr().err.splitlines()[-1]

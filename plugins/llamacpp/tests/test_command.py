"""The commands of a llama.cpp replica."""

from __future__ import annotations

import pytest
from attrs import evolve

from llmgw_core.engine import (
    Command,
    Endpoint,
    Exit,
    Flag,
    FlagTable,
    LaunchOrder,
    Parallel,
    ReplicaSpec,
    Secret,
    Settings,
    Shard,
    Slot,
    Speculative,
)
from llmgw_core.testing.recorded import recorded_help
from llmgw_engine_llamacpp import (
    llmgw_build_command,
    llmgw_dry_run,
    llmgw_engine_info,
    llmgw_help_commands,
    llmgw_read_dry_run,
    llmgw_read_help,
    llmgw_read_version,
    llmgw_refusals,
    llmgw_version_command,
    llmgw_widest_specs,
)
from llmgw_engine_llamacpp.info import RPC_SERVER, SERVER


def a_slot(rank: int = 0, **changes: object) -> Slot:
    slot = Slot(
        executable=("/opt/llama/llama-server",) if rank == 0 else ("/opt/llama/rpc-server",),
        listen=Endpoint("0.0.0.0", 18000 + rank),
        address=f"10.0.0.{rank + 1}",
        directory=f"/run/llmgw/r-{rank}",
        gpus=(f"GPU-a{rank}", f"GPU-b{rank}"),
    )
    return evolve(slot, **changes)  # type: ignore[arg-type]


def a_replica(nodes: int = 1, settings: Settings | None = None, **changes: object) -> ReplicaSpec:
    replica = ReplicaSpec(
        id="qwen/0",
        engine="llamacpp",
        source="/models/qwen.gguf",
        served_name="qwen",
        slots=tuple(a_slot(rank) for rank in range(nodes)),
        rendezvous=Endpoint("10.0.0.1", 19000) if nodes > 1 else None,
        settings=settings or Settings(metrics=False),
    )
    return evolve(replica, **changes)  # type: ignore[arg-type]


def build(shard: Shard, flags: FlagTable | None = None) -> Command:
    return llmgw_build_command(shard, flags)


def head_args(replica: ReplicaSpec) -> tuple[str, ...]:
    return build(replica.shards[0]).args


def value_of(flag: str, replica: ReplicaSpec) -> str | None:
    args = head_args(replica)
    return args[args.index(flag) + 1] if flag in args else None


def test_the_least_command_leaves_no_default_that_changed_between_versions() -> None:
    assert build(a_replica().shards[0]).argv == (
        *("/opt/llama/llama-server", "--model", "/models/qwen.gguf", "--alias", "qwen"),
        *("--host", "0.0.0.0", "--port", "18000", "--ctx-size", "0", "--parallel", "1", "--sse-ping-interval", "1"),
    )


def test_a_build_without_pings_is_not_asked_for_them() -> None:
    old = FlagTable((Flag(("--model",)),))

    assert "--sse-ping-interval" not in build(a_replica().shards[0], old).args


def test_workers_start_first_and_the_head_calls_them_at_their_ports() -> None:
    head, *workers = (build(shard) for shard in a_replica(nodes=3).shards)

    assert value_of("--rpc", a_replica(nodes=3)) == "10.0.0.2:18001,10.0.0.3:18002"
    assert workers[0].argv == ("/opt/llama/rpc-server", "--host", "0.0.0.0", "--port", "18001")
    assert {each.launch_order for each in (head, *workers)} == {LaunchOrder.WORKERS_FIRST}
    assert [each.program for each in (head, *workers)] == [SERVER, RPC_SERVER, RPC_SERVER]
    assert [each.ignore_sigpipe for each in (head, *workers)] == [False, True, True]


def test_the_head_stops_before_its_workers_and_gets_a_second_sigterm() -> None:  # E22
    for shard in a_replica(nodes=2).shards:
        stop = build(shard).stop
        assert stop.head_first
        assert not stop.drains
        assert [step.signal for step in stop.steps] == ["SIGTERM", "SIGTERM"]


@pytest.mark.parametrize(
    ("context", "sequences", "args"),
    [
        (None, None, ("--ctx-size", "0", "--parallel", "1")),
        (8192, None, ("--ctx-size", "8192", "--parallel", "1")),
        (8192, 4, ("--ctx-size", "32768", "--parallel", "4")),
        (None, 4, ("--ctx-size", "0", "--parallel", "4", "--kv-unified")),
        (None, 1, ("--ctx-size", "0", "--parallel", "1")),
    ],
)
def test_each_sequence_gets_the_context_that_was_asked_for(
    context: int | None, sequences: int | None, args: tuple[str, ...]
) -> None:
    replica = a_replica(settings=Settings(context_length=context, max_sequences=sequences, metrics=False))

    start = head_args(replica).index("--ctx-size")
    assert head_args(replica)[start:] == (*args, "--sse-ping-interval", "1")


@pytest.mark.parametrize(
    ("settings", "args"),
    [
        (Settings(), ("--metrics",)),
        (Settings(kv_cache_dtype="q8_0"), ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0")),
        (Settings(prefix_caching=True), ("--cache-prompt",)),
        (Settings(prefix_caching=False), ("--no-cache-prompt",)),
        (Settings(chat_template="/t.jinja"), ("--chat-template-file", "/t.jinja")),
        (Settings(reasoning_parser="deepseek"), ("--reasoning-format", "deepseek")),
        (
            Settings(speculative=Speculative("draft-simple", 8, "/d.gguf")),
            ("--spec-type", "draft-simple", "--spec-draft-n-max", "8", "--spec-draft-model", "/d.gguf"),
        ),
        (
            Settings(speculative=Speculative("draft-simple", 8, "org/d:Q8_0")),
            ("--spec-draft-n-max", "8", "--spec-draft-hf", "org/d:Q8_0"),
        ),
        (Settings(speculative=Speculative("ngram-map-k", 8)), ("ngram-map-k", "--spec-ngram-map-k-size-m", "8")),
        (
            Settings(speculative=Speculative("ngram-mod", 8)),
            ("--spec-ngram-mod-n-max", "8", "--spec-ngram-mod-n-min", "8"),
        ),
        (
            Settings(speculative=Speculative("draft-simple,ngram-mod", 64, "/d.gguf")),
            ("--spec-draft-n-max", "64", "--spec-ngram-mod-n-max", "64", "--spec-draft-model", "/d.gguf"),
        ),
    ],
)
def test_a_setting_becomes_its_flags(settings: Settings, args: tuple[str, ...]) -> None:
    assert " ".join(args) in " ".join(head_args(a_replica(settings=settings)))


def test_a_hub_name_is_loaded_from_the_hub() -> None:
    replica = a_replica(source="ggml-org/gemma:Q8_0")

    assert value_of("--hf-repo", replica) == "ggml-org/gemma:Q8_0"
    assert "--model" not in head_args(replica)


def test_the_key_goes_by_environment_only() -> None:
    command = build(a_replica(api_key=Secret("sesame")).shards[0])

    assert command.secret_env == {"LLAMA_API_KEY": Secret("sesame")}
    assert "sesame" not in repr(command)
    assert not any("sesame" in arg for arg in command.argv)


def test_the_engines_own_configuration_is_shut_out() -> None:
    command = build(a_replica().shards[0])

    assert "LLAMA_ARG_*" in command.unset_env
    assert command.env["XDG_CONFIG_HOME"] == "/run/llmgw/r-0/config"
    assert command.directories == ("/run/llmgw/r-0/config",)


def test_a_shard_sees_its_own_gpus_and_none_when_it_has_none() -> None:
    replica = a_replica(slots=(a_slot(gpus=()),))

    assert build(a_replica().shards[0]).env["CUDA_VISIBLE_DEVICES"] == "GPU-a0,GPU-b0"
    assert build(replica.shards[0]).env["CUDA_VISIBLE_DEVICES"] == ""


def test_the_operators_arguments_go_to_the_head_and_the_environment_to_all() -> None:
    replica = a_replica(nodes=2, extra_args=("--threads", "8"), extra_env={"GGML_CUDA_NO_PINNED": "1"})

    head, worker = (build(shard) for shard in replica.shards)

    assert head.extra_args == ("--threads", "8")
    assert worker.extra_args == ()
    assert head.env["GGML_CUDA_NO_PINNED"] == worker.env["GGML_CUDA_NO_PINNED"] == "1"


@pytest.mark.parametrize(
    ("replica", "said"),
    [
        (a_replica(parallel=Parallel(tensor=2)), "tensor parallel size 2"),
        (a_replica(parallel=Parallel(data=2)), "data parallel size 2"),
        (a_replica(parallel=Parallel(expert=2)), "expert parallel size 2"),
        (a_replica(served_name="a,b"), "'a,b' has a comma"),
        (
            a_replica(nodes=2, slots=(a_slot(), a_slot(1, address="fd00::2"))),
            "worker 1 has the IPv6 address fd00::2",
        ),
    ],
)
def test_what_llama_cpp_cannot_do_is_refused(replica: ReplicaSpec, said: str) -> None:
    (reason,) = llmgw_refusals(replica)

    assert said in reason


def test_the_widest_replicas_are_not_refused() -> None:
    assert [llmgw_refusals(spec) for spec in llmgw_widest_specs()] == [()] * len(llmgw_widest_specs())


@pytest.mark.parametrize("version", llmgw_engine_info().checked_versions)
def test_every_flag_that_is_passed_lives_in_every_checked_version(version: str) -> None:
    table = llmgw_read_help(SERVER, recorded_help(f"llamacpp-{version}.help.txt"))

    passed = [arg for spec in llmgw_widest_specs() for arg in head_args(spec) if arg.startswith("--")]

    assert {arg for arg in passed if (flag := table.find(arg)) is None or flag.state.value != "live"} == set()


def test_no_rename_names_a_flag_that_b10991_accepts() -> None:
    """But `--no-webui`, which b10964 refused and which came back."""
    table = llmgw_read_help(SERVER, recorded_help("llamacpp-b10991.help.txt"))

    accepted = [rename.old for rename in llmgw_engine_info().renames if _lives(table.find(rename.old))]
    successors = [new.split()[0] for rename in llmgw_engine_info().renames for new in rename.new]

    assert accepted == ["--no-webui"]
    assert [name for name in successors if not _lives(table.find(name))] == []


def _lives(flag: object) -> bool:
    return flag is not None and getattr(flag, "state").value == "live"  # noqa: B009


def test_asking_for_help_is_not_swayed_by_the_environment() -> None:
    (command,) = llmgw_help_commands(SERVER, ("llama-server",))

    assert command.argv == ("llama-server", "--help")
    assert "LLAMA_ARG_*" in command.unset_env
    assert llmgw_version_command(SERVER, ("llama-server",)).argv == ("llama-server", "--version")
    assert llmgw_version_command(RPC_SERVER, ("rpc-server",)).argv == ("rpc-server", "--help")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version: 5678 (4df29be)\nbuilt with cc", "b5678"),
        ("version: 0.4.1-dev (build 10991, commit 571d0d5)", "b10991"),
        ("ggml_cuda_init: found 1 CUDA devices:\nversion: 9002 (457e2288c)\n", "b9002"),  # B12
        ("version: 1 (571d0d5)", "571d0d5"),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)", "7e4c0a9"),
        ("Usage: ggml-rpc-server [options]", None),
        ("version: ² (a)", "²"),
        ("", None),
    ],
)
def test_the_version_is_found_in_both_formats_and_behind_noise(text: str, version: str | None) -> None:
    assert llmgw_read_version(text) == version


def test_a_dry_run_is_the_command_without_its_connections() -> None:
    command = build(a_replica(nodes=2, extra_args=("--threads", "8")).shards[0])

    dry = llmgw_dry_run(command)

    assert dry is not None
    assert "--rpc" not in dry.argv
    assert "10.0.0.2:18001" not in dry.argv
    assert dry.argv[-3:] == ("--threads", "8", "--help")
    assert dry.directories == ()
    assert dry.secret_env == {}


def test_a_dry_run_leaves_out_what_acts_while_it_is_parsed() -> None:
    replica = a_replica(extra_args=("--log-file", "/var/log/live.log", "--mlock"), extra_env={"LLAMA_LOG_FILE": "/x"})
    dry = llmgw_dry_run(build(replica.shards[0]))
    assert dry is not None
    assert dry.extra_args == ("--mlock", "--help")
    assert "LLAMA_LOG_FILE" not in dry.env


def test_a_worker_has_no_dry_run() -> None:
    assert llmgw_dry_run(build(a_replica(nodes=2).shards[1])) is None


@pytest.mark.parametrize(
    ("exit", "said"),
    [
        (Exit(0, log_tail="-h, --help"), ()),
        (
            Exit(1, log_tail='warn: x\nerror while handling argument "--port": stoi\n\nusage:\n--port PORT'),
            ('error while handling argument "--port": stoi',),
        ),
        (Exit(1, log_tail="error: invalid argument: -dio\n"), ("error: invalid argument: -dio",)),
        (Exit(1, log_tail="something else"), None),
        (Exit(127, log_tail="error while loading shared libraries"), None),
        (Exit(None, signal=6), None),
    ],
)
def test_a_dry_run_says_what_was_refused(exit: Exit, said: tuple[str, ...] | None) -> None:
    assert llmgw_read_dry_run(exit) == said

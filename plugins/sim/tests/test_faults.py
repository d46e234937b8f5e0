"""What `--fault-…` does, each with the real process."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import fields_dict

from llmgw_core.engine import Exit, FailureKind
from llmgw_engine_sim import llmgw_explain_exit, llmgw_read_help
from llmgw_engine_sim.fault_flags import Faults
from llmgw_engine_sim.options import build_parser, parse_options
from llmgw_engine_sim.testing import DEADLINE_S, Sim, Start, await_true, free_port, sims, start_ranks

TEXT = {"model": "m", "prompt": "two words", "max_tokens": 3}
README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with sims(tmp_path) as start:
        yield start


def ready(sim: Sim) -> Sim:
    sim.await_log(": ready\n")
    return sim


def ask(sim: Sim) -> int:
    return sim.ask("/v1/completions", TEXT)[0]


def metric(sim: Sim, name: str) -> int:
    return int(sim.ask("/metrics")[1].partition(f"\n{name} ")[2].partition("\n")[0])


@pytest.fixture
def hanging() -> Iterator[Any]:
    """Sends a request that is not answered, and holds on to it."""
    with contextlib.ExitStack() as stack:

        def send(sim: Sim) -> None:
            client = stack.enter_context(
                contextlib.closing(http.client.HTTPConnection("127.0.0.1", sim.port, timeout=DEADLINE_S))
            )
            client.request("POST", "/v1/completions", '{"model": "m", "prompt": "x"}')
            await_true(lambda: "yes" if metric(sim, "sim:requests_running") else "", "a running request")

        yield send


@pytest.mark.parametrize(
    ("flags", "code", "last", "was_ready"),
    [
        (("--fault-crash-while-loading", "0.1"), 1, "fault: crashes while it loads", False),
        (("--fault-crash-while-loading", "0", "--load-time", "60"), 1, "fault: crashes while it loads", False),
        (("--fault-crash-after-ready", "0"), 1, "fault: crashes", True),
        (("--fault-exit-zero", "0.05"), 0, "fault: ends with 0", True),
    ],
)
def test_it_ends_by_itself(start: Start, flags: tuple[str, ...], code: int, last: str, was_ready: bool) -> None:
    sim = start("sim", *flags)

    assert sim.await_exit() == code
    assert sim.log.splitlines()[-1] == f"llmgw-sim: rank 0: {last}"
    assert (": ready\n" in sim.log) is was_ready
    failure = llmgw_explain_exit(Exit(code, log_tail=sim.log))
    assert failure is not None
    assert failure.kind is FailureKind.CRASHED
    assert failure.reason.endswith(last)


def test_it_crashes_when_so_many_requests_have_been_answered(start: Start) -> None:
    sim = ready(start("sim", "--fault-crash-after-requests", "2"))

    assert (ask(sim), sim.process.poll(), ask(sim)) == (200, None, 200)
    assert sim.await_exit() == 1
    assert sim.log.endswith("fault: crashes after 2 requests\n")


@pytest.mark.parametrize(
    ("flags", "requests"), [(("--fault-hang-after-ready", "0"), 0), (("--fault-hang-after-requests", "1"), 1)]
)
def test_it_hangs_with_health_200_and_running_requests(
    start: Start, hanging: Any, flags: tuple[str, ...], requests: int
) -> None:
    sim = ready(start("sim", *flags))
    assert [ask(sim) for _ in range(requests)] == [200] * requests
    sim.await_log("fault: hangs")

    hanging(sim)

    assert sim.ask("/health")[0] == 200
    assert metric(sim, "sim:requests_running") == 1
    tokens = metric(sim, "sim:tokens_total")
    hanging(sim)
    assert metric(sim, "sim:tokens_total") == tokens


def test_it_is_unready_for_a_while(start: Start) -> None:
    sim = ready(start("sim", "--fault-unready-after-ready", "0", "--fault-unready-for", "0.5"))
    sim.await_log("fault: is unready")

    assert await_true(lambda: "yes" if sim.ask("/health")[0] == 200 else "", "health again")


def test_it_is_unready_for_ever(start: Start) -> None:
    sim = ready(start("sim", "--fault-unready-after-ready", "0"))
    sim.await_log("fault: is unready")

    assert sim.ask("/health")[0] == 503
    assert ask(sim) == 200


def test_it_ignores_sigterm(start: Start) -> None:
    sim = ready(start("sim", "--fault-ignore-sigterm"))

    sim.process.send_signal(signal.SIGTERM)
    sim.await_log("fault: ignores SIGTERM")
    sim.process.send_signal(signal.SIGTERM)

    assert ask(sim) == 200
    assert sim.process.poll() is None


@pytest.mark.parametrize("rank", [0, 1])
def test_it_stops_slowly(start: Start, rank: int) -> None:
    sim = ready(start_ranks(start, "--fault-slow-stop", "0.5")[rank])
    began = time.monotonic()

    sim.process.send_signal(signal.SIGTERM)

    assert sim.await_exit() == 0
    assert time.monotonic() - began >= 0.5
    assert "fault: takes 0.5 s to end" in sim.log


def test_it_is_unready_while_it_is_held(start: Start, tmp_path: Path) -> None:
    held = tmp_path / "held"
    sim = ready(start("sim", "--fault-hold-health", str(held)))
    assert sim.ask("/health")[0] == 200
    held.touch()
    assert [sim.ask("/health")[0] for _ in range(2)] == [503, 503]
    held.unlink()
    assert sim.ask("/health")[0] == 200
    assert sim.log.count("fault: is held unready") == 1


def test_it_loads_gives_tokens_and_ends_only_when_it_is_not_held(start: Start, hanging: Any, tmp_path: Path) -> None:
    held = {name: tmp_path / name for name in ("loading", "tokens", "stop")}
    for file in held.values():
        file.touch()
    sim = start("sim", *(word for name, file in held.items() for word in (f"--fault-hold-{name}", str(file))))
    sim.await_log("fault: is held while it loads")
    assert sim.ask("/health")[0] == 503
    assert ": ready" not in sim.log
    held["loading"].unlink()
    ready(sim)

    hanging(sim)
    sim.await_log("fault: is held before a token")
    assert metric(sim, "sim:tokens_total") == 0
    held["tokens"].unlink()
    sim.await_log("request 1: /v1/completions answered with 200")

    sim.process.send_signal(signal.SIGTERM)
    sim.await_log("fault: is held while it ends")
    assert sim.process.poll() is None
    held["stop"].unlink()
    assert sim.await_exit() == 0


def test_what_is_held_by_no_file_is_not_held(start: Start, tmp_path: Path) -> None:
    flags = (word for name in ("loading", "tokens", "stop") for word in (f"--fault-hold-{name}", str(tmp_path / "no")))
    sim = ready(start("sim", *flags))

    assert ask(sim) == 200
    sim.process.send_signal(signal.SIGTERM)
    assert sim.await_exit() == 0
    assert "fault" not in sim.log


def test_it_never_listens(start: Start) -> None:
    sim = start("sim", "--fault-refuse-port", "--port", str(port := free_port()))
    sim.await_log("fault: does not listen")

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    sim.process.send_signal(signal.SIGTERM)
    assert sim.await_exit() == 0


def test_it_leaves_a_child_that_holds_a_file(start: Start, tmp_path: Path) -> None:
    held = tmp_path / "held"
    sim = ready(start("sim", "--fault-orphan", str(held)))
    child = int(held.read_text())
    try:
        assert os.getsid(child) == child
        sim.process.kill()
        sim.await_exit()
        os.kill(child, signal.SIGTERM)

        with held.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        second = start("second", "--fault-orphan", str(held))
        assert second.await_exit() == 1
        assert f"cannot start: {held} is held by process {child}" in second.log
    finally:
        os.kill(child, signal.SIGKILL)

    await_true(lambda: "yes" if not held_by_any(held) else "", "the file to be free")
    third = ready(start("third", "--fault-orphan", str(held)))
    os.kill(int(held.read_text()), signal.SIGKILL)
    assert ask(third) == 200


def held_by_any(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_worker_dies_and_rank_0_does_not_notice(start: Start, hanging: Any) -> None:
    head, first, second = start_ranks(start, "--fault-die-silently", "0", "--fault-rank", "2", count=3)

    assert second.await_exit() == 0
    assert "fault" not in second.log
    hanging(ready(head))

    assert head.ask("/health")[0] == 200
    assert head.process.poll() is None
    assert first.process.poll() is None


def test_a_fault_may_be_one_ranks(start: Start) -> None:
    head, worker = start_ranks(start, "--fault-crash-after-ready", "0.1", "--fault-rank", "1")

    assert worker.await_exit() == 1
    assert head.await_exit() == 1
    assert "fault: crashes" in worker.log
    assert "rank 1 was lost" in head.log
    assert "fault" not in head.log


def test_a_fault_strikes_once(start: Start, tmp_path: Path) -> None:
    flags = ("--fault-crash-after-ready", "0", "--fault-once", str(tmp_path / "struck"))
    assert start("first", *flags).await_exit() == 1

    second = ready(start("second", *flags))

    assert ask(second) == 200
    assert "fault" not in second.log


def test_of_two_processes_at_once_one_is_struck(start: Start, tmp_path: Path) -> None:
    flags = ("--fault-exit-zero", "0.05", "--fault-once", str(tmp_path / "struck"))
    both = start("one", *flags), start("other", *flags)

    await_true(lambda: "yes" if any(sim.process.poll() == 0 for sim in both) else "", "an end")
    survivor = next(sim for sim in both if sim.process.poll() is None)
    assert ask(ready(survivor)) == 200


def test_every_fault_is_a_flag_with_help_and_in_the_readme() -> None:
    help = build_parser().format_help()
    readme = README.read_text(encoding="utf-8")
    flags = {f"--fault-{name.replace('_', '-')}" for name in fields_dict(Faults)}

    assert {flag for flag in flags if not llmgw_read_help(help).documents(flag)} == set()
    assert {flag for flag in flags if f"| `{flag}" not in readme} == set()
    assert {word for word in readme.replace("`", " ").split() if word.startswith("--fault-")} <= flags


@pytest.mark.parametrize(
    "args", [("--fault-crash-after-requests", "0"), ("--fault-slow-stop", "-1"), ("--fault-rank", "x")]
)
def test_what_no_fault_can_be_is_refused(args: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        parse_options(("--model", "m", *args))

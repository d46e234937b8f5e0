"""A command is run to its end whatever it does: real processes, real signals."""

import os
import sys
from pathlib import Path

import pytest
import trio

from llmgw_core.engine import Command, Secret
from llmgw_core.examine.process import OUTPUT_LIMIT_BYTES, child_environment, run_to_end


def sh(script: str) -> Command:
    return Command("sh", ("/bin/sh", "-c", script), ())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter of one that ends while it is read
        return True


async def wait_until_gone(pid: int) -> None:
    with trio.fail_after(60):
        while not gone(pid):  # noqa: ASYNC110 - the death of another's child gives no event
            await trio.sleep(0.01)


async def test_both_streams_and_the_exit_code_are_kept_apart() -> None:
    ended = await run_to_end(sh("echo out; echo err >&2; exit 3"), os.environ, 30)
    assert (ended.code, ended.signal, ended.stdout, ended.stderr, ended.timed_out) == (3, None, "out\n", "err\n", False)


async def test_a_signal_is_told_from_an_exit_code() -> None:
    ended = await run_to_end(sh("kill -ABRT $$"), os.environ, 30)
    assert (ended.code, ended.signal) == (None, 6)


async def test_what_is_no_text_is_kept_readable() -> None:
    assert (await run_to_end(sh(r"printf '\377ok'"), os.environ, 30)).stdout == "\ufffdok"


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}; trap '' TERM; echo begun; wait"
    for within_s in (0.5, 5, 50):  # until it gets so far in its time
        with trio.fail_after(90):
            ended = await run_to_end(sh(script), os.environ, within_s)
        assert ended.timed_out
        if ended.stdout:
            break
    assert ended.stdout == "begun\n"
    for pid in map(int, pids.read_text().split()):
        await wait_until_gone(pid)


async def test_a_child_that_holds_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with trio.fail_after(30):
        ended = await run_to_end(sh(f"sleep 1000 & echo $! > {pid}; echo help"), os.environ, 600)
    assert (ended.code, ended.stdout, ended.timed_out) == (0, "help\n", False)
    await wait_until_gone(int(pid.read_text()))


async def test_endless_output_is_bounded() -> None:
    flood = f"{sys.executable} -c \"import sys\nfor _ in range(200): sys.stdout.write('x' * 65536)\""
    ended = await run_to_end(sh(flood), os.environ, 60)
    assert ended.code == 0
    assert len(ended.stdout) == OUTPUT_LIMIT_BYTES


async def test_nothing_is_read_from_the_terminal() -> None:
    assert (await run_to_end(sh("cat; echo end"), os.environ, 30)).stdout == "end\n"


async def test_what_cannot_be_started_raises() -> None:
    with pytest.raises(FileNotFoundError):
        await run_to_end(Command("x", ("/no/such/file",), ()), os.environ, 30)


def test_the_environment_is_scrubbed_then_set() -> None:
    command = Command(
        "x", ("x",), (), env={"LLAMA_ARG_PORT": "1"}, secret_env={"KEY": Secret("s")}, unset_env=("LLAMA_ARG_*", "Q")
    )
    inherited = {"LLAMA_ARG_PORT": "abc", "LLAMA_ARG_HOST": "h", "Q": "1", "PATH": "/bin", "KEY": "old"}
    assert child_environment(command, inherited) == {"PATH": "/bin", "LLAMA_ARG_PORT": "1", "KEY": "s"}

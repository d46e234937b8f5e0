"""The reaper, as a real process: what it starts, drains, rotates, remembers, and outlives."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest
import trio

from llmgw_core.agent.housing import OwnSession
from llmgw_core.agent.processes import lives, send_signal
from llmgw_core.agent.reaper_link import NotStarted, ReaperGone, ReaperLink, connect_reaper
from llmgw_core.plan.shard_tree import ProcessId

SOURCE = Path(str(files("llmgw_core.agent").joinpath("reaper.py")))
ENV = {"PATH": os.environ["PATH"]}
LIMIT_S = 60.0


@asynccontextmanager
async def linked(directory: Path) -> AsyncIterator[ReaperLink]:
    async with trio.open_nursery() as nursery:
        link = await connect_reaper(directory)
        nursery.start_soon(link.hear)
        yield link
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def reaper(directory: Path, log_bytes: int = 1 << 20) -> AsyncIterator[ReaperLink]:
    with trio.fail_after(LIMIT_S):
        await OwnSession((str(log_bytes),)).launch(directory, SOURCE, ENV)
        async with linked(directory) as link:
            me = (await link.state()).id
            try:
                yield link
            finally:
                with trio.CancelScope(shield=True):
                    for each in (await link.state()).processes if not link.gone.is_set() else ():
                        send_signal(each.id, signal.SIGKILL)
                send_signal(me, signal.SIGKILL)


async def run(link: ReaperLink, directory: Path, script: str, name: str = "x", **more: object) -> str:
    """What it printed last, when it has ended."""
    await link.start(name, ("sh", "-c", script), ENV, str(directory), **more)
    return (await link.wait_ended(name)).tail


def log(directory: Path) -> str:
    logs = sorted((directory / "logs").glob("*.log"), key=lambda path: int(path.stem))
    return "".join(path.read_text() for path in logs)


async def test_a_process_runs_as_it_was_told_to(tmp_path: Path) -> None:
    tmp_path = tmp_path / ("deep" * 40)  # a socket's path takes 107 bytes
    tmp_path.mkdir()
    async with reaper(tmp_path) as link:
        script = "echo $A in $(pwd); echo no >&2; ps -o sid= -p $$; exit 3"
        started = await link.start("x", ("sh", "-c", script), {**ENV, "A": "1"}, str(tmp_path))
        ended = await link.wait_ended("x")
        assert (ended.code, ended.signal, ended.running) == (3, None, False)
        assert ended.tail.splitlines()[:2] == [f"1 in {tmp_path}", "no"]
        assert int(ended.tail.splitlines()[2]) == started.id.pid
        assert log(tmp_path).splitlines()[-1] == "llmgw: x ended: exit code 3"


@pytest.mark.parametrize(("ignore", "ignored"), [(False, 0), (True, 1 << (signal.SIGPIPE - 1))])
async def test_only_sigpipe_may_be_ignored_at_the_start(tmp_path: Path, ignore: bool, ignored: int) -> None:
    async with reaper(tmp_path) as link:
        command = ("grep", "SigIgn", "/proc/self/status")
        await link.start("x", command, ENV, str(tmp_path), ignore_sigpipe=ignore)
        (_, mask) = (await link.wait_ended("x")).tail.split()
        assert int(mask, 16) % (1 << 31) == ignored  # signals above 31 are the C library's own


async def test_what_cannot_be_started_is_told_with_the_reason(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        with pytest.raises(NotStarted, match="/none/engine: No such file or directory"):
            await link.start("x", ("/none/engine",), ENV, str(tmp_path))
        with pytest.raises(NotStarted, match="/none: No such file or directory"):
            await link.start("x", ("sh",), ENV, "/none")
        assert (await link.state()).processes == ()


async def test_a_name_is_started_once(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        first = await link.start("x", ("sleep", "60"), ENV, str(tmp_path))
        assert await link.start("x", ("sleep", "60"), ENV, str(tmp_path)) == first
        await link.signal("x", signal.SIGTERM)
        assert (await link.wait_ended("x")).signal == signal.SIGTERM
        await link.signal("x", signal.SIGTERM)  # nobody has that pid for it


async def test_it_outlives_who_asked_and_remembers(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        os.mkfifo(tmp_path / "fifo")
        await link.start("x", ("sh", "-c", "read line < fifo; exit 7"), ENV, str(tmp_path))
        async with linked(tmp_path) as second:
            await second.start("y", ("sh", "-c", "echo bye; exit 4"), ENV, str(tmp_path))
            assert (await second.wait_ended("y")).code == 4
        async with linked(tmp_path) as third:
            state = await third.state()
            assert [(each.name, each.code, each.tail) for each in state.processes][1:] == [("y", 4, "bye\n")]
            assert state.id == (await link.state()).id
            assert third.ended["y"].code == 4


async def test_it_ends_when_it_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        me = (await link.state()).id
        child = "setsid sh -c 'echo $$; touch told; exec sleep 60'"
        tail = await run(link, tmp_path, f"{child} & while [ ! -e told ]; do sleep 0.01; done")
        assert await link.end() is False
        os.kill(int(tail.split()[0]), signal.SIGKILL)
        while not await link.end():  # noqa: ASYNC110 - until it has reaped the killed one
            await trio.sleep(0.01)
        await link.gone.wait()
        while lives(me):  # noqa: ASYNC110 - it says so a moment before it ends
            await trio.sleep(0.01)
        assert not (tmp_path / "socket").exists()


async def test_when_the_reaper_is_killed_who_waits_is_told(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        held = await link.start("x", ("sleep", "60"), ENV, str(tmp_path))
        os.kill((await link.state()).id.pid, signal.SIGKILL)
        with pytest.raises(ReaperGone):
            await link.wait_ended("x")
        with pytest.raises(ReaperGone):
            await link.state()
        send_signal(held.id, signal.SIGKILL)


async def test_output_is_rotated_and_bounded(tmp_path: Path) -> None:
    async with reaper(tmp_path, log_bytes=10_000) as link:
        tail = await run(link, tmp_path, "seq 1 200000")
        logs = sorted(int(path.stem) for path in (tmp_path / "logs").glob("*.log"))
        assert len(logs) == 4
        assert logs[0] > 1
        assert tail.splitlines()[-1] == "200000"
        numbers = [int(line) for line in log(tmp_path).splitlines() if line.isdigit()]
        assert numbers == list(range(numbers[0], 200001))
        total = sum(path.stat().st_size for path in (tmp_path / "logs").iterdir())
        assert total < 4 * (10_000 + 65_536 + 4096)


async def test_a_full_disk_blocks_nobody_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.log").symlink_to("/dev/full")
    async with reaper(tmp_path) as link:
        (tmp_path / "logs" / "1.log").rename(tmp_path / "logs" / "1.gone")
        (tmp_path / "logs" / "1.log").symlink_to("/dev/full")
        (tmp_path / "logs" / "2.log").symlink_to("/dev/full")
        tail = await run(link, tmp_path, "seq 1 100000")
        assert tail.splitlines()[-1] == "100000"
        assert "No space left on device" in (await link.state()).lost


async def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        await link.start("a", ("sh", "-c", "printf half; sleep 0.2; echo ' line'"), ENV, str(tmp_path), prefix="[a] ")
        await run(link, tmp_path, "echo whole; printf last", "b")
        await link.wait_ended("a")
        lines = log(tmp_path).splitlines()
        assert {"[a] half line", "whole", "last"} <= {*lines}


async def test_it_has_the_standard_library_only_and_is_no_child_of_who_started_it(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        pid = (await link.state()).id.pid
        process = trio.Path(f"/proc/{pid}")
        assert (await (process / "cmdline").read_text()).split("\0")[1:3] == ["-I", "-S"]
        status = dict(line.split(":", 1) for line in (await (process / "status").read_text()).splitlines())
        assert int(status["PPid"]) != os.getpid()
        assert os.getsid(pid) != os.getsid(0)
        modules = (tmp_path / "socket").stat().st_mode & 0o777
        assert modules == 0o700


async def test_garbage_on_its_socket_ends_that_link_only(tmp_path: Path) -> None:
    async with reaper(tmp_path) as link:
        for garbage in (b"{\n", b"[]\n", b'{"id": 1, "do": "no such"}\n', b'{"do": "state"}\n'):
            async with await connect_raw(tmp_path) as stream:
                await stream.send_all(garbage)
                while await stream.receive_some(4096):
                    pass
        assert (await link.state()).processes == ()


async def connect_raw(directory: Path) -> trio.SocketStream:
    return (await connect_reaper(directory))._stream


async def test_the_machines_end_is_passed_on(tmp_path: Path) -> None:
    """systemd's KillMode=mixed sends SIGTERM to the reaper alone."""
    async with reaper(tmp_path) as link:
        await link.start("x", ("sleep", "60"), ENV, str(tmp_path))
        os.kill((await link.state()).id.pid, signal.SIGTERM)
        assert (await link.wait_ended("x")).signal == signal.SIGTERM


def test_it_needs_the_standard_library_only() -> None:
    text = SOURCE.read_text()
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert {name for name in imported if name not in sys.stdlib_module_names} == set()


def test_nobody_lives_under_another_start_time() -> None:
    assert not lives(ProcessId(os.getpid(), 1))

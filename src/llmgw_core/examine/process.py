"""Run one short command to its end, whatever it does.

In: a `Command` and a time limit.  Out: how it ended and what it printed, bounded.
Rules: the command has no standard input and leads a process group of its own; when the time is up, or its front process
has ended while something else still holds its output, the whole group is killed; one that not even this ends (it hangs
in the kernel) is left alone after `LINGER_S`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import glob

import trio
from attrs import evolve, field, frozen, mutable

from llmgw_core.engine.command import Command

OUTPUT_LIMIT_BYTES = 4 * 1024 * 1024
"""Of each stream; the largest help known is 0.2 MB. The rest is read and dropped."""
LINGER_S = 2.0
"""How long output may stay open after the front process has ended, and how long a killed one may take to end."""


@frozen
class Finished:
    """How a command ended."""

    code: int | None
    """Its exit code; `None` when a signal ended it, or nothing did."""
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    pid: int | None = None
    """Of its front process, and of the process group that it led."""


@mutable
class _Buffer:
    text: bytearray = field(factory=bytearray)

    async def drain(self, stream: trio.abc.ReceiveStream) -> None:
        with suppress(trio.ClosedResourceError):
            async for chunk in stream:
                self.text += chunk[: OUTPUT_LIMIT_BYTES - len(self.text)]

    def decode(self) -> str:
        return self.text.decode("utf-8", errors="replace")


async def run_to_end(
    command: Command,
    environ: Mapping[str, str],
    timeout_s: float,
    on_survivor: Callable[[trio.Process], None] = lambda process: None,
) -> Finished:
    """Run `command` in `environ`, changed as it says; raises OSError when it cannot be started.

    `on_survivor` gets a process that was killed and has not ended; whoever keeps it may `poll()` it.
    """
    process = await trio.lowlevel.open_process(
        list(command.argv),
        env=child_environment(command, environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    out, err = _Buffer(), _Buffer()
    try:
        timed_out = await _collect(process, out, err, timeout_s)
    finally:
        await _end_group(process)
        if process.returncode is None:
            on_survivor(process)
    ended = _how(process.returncode)
    return evolve(ended, stdout=out.decode(), stderr=err.decode(), timed_out=timed_out, pid=process.pid)


def _how(code: int | None) -> Finished:
    return Finished(code) if code is None or code >= 0 else Finished(None, -code)


def child_environment(command: Command, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what the command drops, with what it sets."""
    kept = {
        name: value
        for name, value in environ.items()
        if not any(fnmatchcase(name, pattern) for pattern in command.unset_env)
    }
    secrets = {name: secret.reveal() for name, secret in command.secret_env.items()}
    return {**kept, **command.env, **secrets}


async def _collect(process: trio.Process, out: _Buffer, err: _Buffer, timeout_s: float) -> bool:
    """Read both streams until they end and the process has; whether the time was up first."""
    assert process.stdout is not None  # noqa: S101 - it was opened with pipes
    assert process.stderr is not None  # noqa: S101
    with trio.move_on_after(timeout_s) as limit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(out.drain, process.stdout)
            nursery.start_soon(err.drain, process.stderr)
            await process.wait()
            nursery.cancel_scope.deadline = trio.current_time() + LINGER_S
    return limit.cancelled_caught


async def _end_group(process: trio.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with trio.CancelScope(shield=True, deadline=trio.current_time() + LINGER_S):
        await process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.aclose()


def living_member(group: int) -> int | None:
    """A process of this group that still runs, or hangs in the kernel; `None` also where there is no /proc."""
    for stat in glob("/proc/[0-9]*/stat"):
        with suppress(OSError), open(stat, "rb") as file:
            pid, _, rest = file.read().partition(b" ")
            state, _, its_group, *_ = rest.rpartition(b")")[2].split()
            if int(its_group) == group and state not in (b"Z", b"X"):
                return int(pid)
    return None

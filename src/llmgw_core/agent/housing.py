"""Where a shard's reaper lives, so that it outlives the agent: in a session of its own, or in a unit of systemd's.

Rules: under systemd the agent's restart kills its whole cgroup (KillMode=control-group), which no double fork escapes:
there each shard is a transient unit with a cgroup of its own; the two differ in how the reaper is started and in how
the last kill is made, and in nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import trio
from attrs import frozen

from llmgw_core.errors import LlmgwError

SYSTEMD = Path("/run/systemd/system")
START_S = 20.0
KILL_S = 10.0
STOP_S = 40
"""How long systemd leaves the engines when the machine goes down."""


class NotHoused(LlmgwError):
    """A reaper that could not be started."""


class Housing(Protocol):
    async def launch(self, directory: Path, source: Path, env: Mapping[str, str]) -> None:
        """Start the reaper; raises `NotHoused`."""

    async def kill(self, directory: Path) -> None:
        """The last kill, after which nothing of the shard should be left."""


def choose_housing(log_bytes: int | None = None) -> Housing:
    """systemd where it runs and takes our orders, else a session."""
    words = () if log_bytes is None else (str(log_bytes),)
    run = shutil.which("systemd-run")
    if SYSTEMD.is_dir() and run and os.geteuid() == 0:
        return SystemdUnit(run, words)
    return OwnSession(words)


def reaper_command(source: Path, directory: Path) -> tuple[str, ...]:
    # -I and -S: nothing of an environment, a user or a site is read; the reaper needs the standard library only.
    return (sys.executable, "-I", "-S", str(source), str(directory))


@frozen
class OwnSession:
    """A daemon: two forks and a session."""

    words: tuple[str, ...] = ()

    async def launch(self, directory: Path, source: Path, env: Mapping[str, str]) -> None:
        words = self.words or (str(16 * 1024 * 1024),)
        await _run_briefly((*reaper_command(source, directory), *words, "daemon"), env)

    async def kill(self, directory: Path) -> None:
        """Nothing more than what whoever stops the shard has done already."""


@frozen
class SystemdUnit:
    """A transient unit: its own cgroup, and at the machine's end SIGTERM for the reaper, which passes it on."""

    systemd_run: str = "systemd-run"
    words: tuple[str, ...] = ()

    async def launch(self, directory: Path, source: Path, env: Mapping[str, str]) -> None:
        await _run_briefly(self.launch_command(directory, source, env), os.environ)

    def launch_command(self, directory: Path, source: Path, env: Mapping[str, str]) -> tuple[str, ...]:
        settings = ("KillMode=mixed", f"TimeoutStopSec={STOP_S}", "SendSIGKILL=yes", "OOMPolicy=continue")
        limits = ("LimitNOFILE=1048576", "LimitMEMLOCK=infinity", "TasksMax=infinity")
        return (
            self.systemd_run,
            "--quiet",
            "--collect",
            f"--unit={unit_name(directory)}",
            "--slice=llmgw.slice",
            f"--description=llmgw shard {directory.name}",
            *(f"--property={each}" for each in (*settings, *limits)),
            *(f"--setenv={name}={value}" for name, value in env.items()),
            "--",
            *reaper_command(source, directory),
            *self.words,
        )

    async def kill(self, directory: Path) -> None:
        """SIGKILL to all that the unit's cgroup has, the reaper too."""
        for words in (("kill", "--signal=SIGKILL", "--kill-who=all"), ("stop",)):
            with trio.move_on_after(KILL_S):
                command = ("systemctl", *words, unit_name(directory))
                await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)


def unit_name(directory: Path) -> str:
    """Unlike any other agent's on this machine."""
    return f"llmgw-shard-{hashlib.sha256(bytes(directory)).hexdigest()[:16]}.service"


async def _run_briefly(command: tuple[str, ...], env: Mapping[str, str]) -> None:
    with trio.move_on_after(START_S):
        try:
            done = await trio.run_process(
                command, env=dict(env), stdin=subprocess.DEVNULL, capture_stderr=True, capture_stdout=True, check=False
            )
        except OSError as error:
            raise NotHoused(f"cannot start {command[0]}: {error.strerror}") from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
            raise NotHoused(f"the reaper did not start: {lines[-1]}")
        return
    raise NotHoused(f"the reaper did not start within {START_S:g} s")

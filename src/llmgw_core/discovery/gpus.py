"""Asks this node's nvidia-smi for its GPUs.

In: the path of nvidia-smi.  Out: a `GpuReport`, within the time limit and a little more, whatever nvidia-smi does.
Rules: one nvidia-smi runs at a time. One that hangs is killed; one that cannot be killed (the driver holds it in the
kernel) is abandoned, and while it is there no other is started. What fails is said, and tried again the next time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

import trio
from attrs import evolve

from llmgw_core.discovery.nvidia_smi import FIELD_SETS, query, read_gpus, refused_field
from llmgw_core.engine.command import Command
from llmgw_core.examine.process import LINGER_S, Finished, living_member, run_to_end
from llmgw_core.model.node import Found, GpuReport

DEFAULT_PATH = "nvidia-smi"
DEFAULT_TIMEOUT_S = 30.0
"""For one query: without persistence mode the driver wakes eight GPUs one after the other."""


class NvidiaSmi:
    """The node's nvidia-smi, and the one that hangs, if one does."""

    def __init__(
        self, path: str = DEFAULT_PATH, *, environ: Mapping[str, str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._path = path
        self._environ = environ
        self._timeout_s = timeout_s
        self._turn = trio.Lock()
        self._survivor: trio.Process | None = None
        self._group: int | None = None
        self._started_at = 0.0

    async def fetch_gpus(self) -> GpuReport:
        """The GPUs, none, or why it could not be told; raises nothing."""
        async with self._turn:
            hanging = self._hanging()
            if hanging:
                return GpuReport(Found.FAILED, reason=hanging)
            found = shutil.which(self._path, path=self._environ.get("PATH", os.defpath))
            if found is None:
                return GpuReport(Found.FAILED, reason=self._not_found())
            return await self._ask(found)

    async def _ask(self, path: str) -> GpuReport:
        """Ask for the largest set of fields that it knows; what it said of the others stays in the reason."""
        refused = ""
        for fields in FIELD_SETS:
            try:
                ended = await self._run(query(path, fields))
            except OSError as error:
                return GpuReport(Found.FAILED, reason=f"{path} cannot be started: {error.strerror or error}")
            if ended.timed_out:
                return await self._give_up(path, ended.pid)
            report = await trio.to_thread.run_sync(_read, ended, fields, abandon_on_cancel=True)
            if report.gpus or refused_field(f"{ended.stdout}\n{ended.stderr}") is None:
                return evolve(report, reason="; ".join(filter(None, (refused, report.reason))))
            refused = report.reason
        return report

    async def _run(self, argv: tuple[str, ...]) -> Finished:
        self._started_at = trio.current_time()
        command = Command("nvidia-smi", argv[:1], argv[1:])
        return await run_to_end(command, self._environ, self._timeout_s, self._abandon)

    def _abandon(self, process: trio.Process) -> None:
        self._survivor = process

    async def _give_up(self, path: str, group: int | None) -> GpuReport:
        """After the kill: it is gone in a moment, or it hangs. A wrapper's child may hang too."""
        self._group = group
        with trio.move_on_after(LINGER_S):
            while self._hanging_pid():  # noqa: ASYNC110 - the death of another's child gives no event
                await trio.sleep(0.02)
        killed = f"nvidia-smi has not answered for {self._timeout_s:g} s and was killed ({path})"
        return GpuReport(Found.FAILED, reason=self._hanging() or killed)

    def _hanging(self) -> str:
        """What to say while the abandoned one is there; empty when there is none any more."""
        pid = self._hanging_pid()
        if pid is None:
            self._survivor = self._group = None
            return ""
        since = trio.current_time() - self._started_at
        return (
            f"nvidia-smi has not answered for {since:.0f} s (pid {pid}), and it cannot be killed; "
            "the driver hangs: reboot the node"
        )

    def _hanging_pid(self) -> int | None:
        if self._survivor is not None and self._survivor.poll() is None:
            return self._survivor.pid
        return living_member(self._group) if self._group is not None else None

    def _not_found(self) -> str:
        if os.path.dirname(self._path):
            there = os.path.exists(self._path)
            return f"{self._path} is no executable file" if there else f"nvidia-smi not found at {self._path}"
        searched = self._environ.get("PATH", os.defpath)
        return f"nvidia-smi not found: no {self._path} in {searched}; give its path with --nvidia-smi"


def _read(ended: Finished, fields: Sequence[str]) -> GpuReport:
    return read_gpus(ended.stdout, fields, code=ended.code, signal=ended.signal, stderr=ended.stderr)

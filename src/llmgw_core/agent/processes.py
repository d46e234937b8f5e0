"""The processes of this machine, as /proc shows them, and signals that reach the process that was meant.

Rules: a process is signalled through a descriptor of its own, opened before it is looked at once more: a pid that was
given to somebody else meanwhile is left alone; a marker counts only in a process of the agent's own user, since
anybody may set a variable.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from llmgw_core.plan.shard_tree import Process, ProcessId

SHARD_VARIABLE, AGENT_VARIABLE = "LLMGW_SHARD", "LLMGW_AGENT"


def read_processes(agent: str) -> dict[int, Process]:
    """All processes but this one, by pid; those of `agent`'s shards have their marker."""
    own = os.getpid()
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own and (process := _read(int(name), agent)) is not None:
            table[process.pid] = process
    return table


def _read(pid: int, agent: str) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    before, _, after = stat.rpartition(b")")
    state, parent, _group, session, *rest = after.split()
    name = before.partition(b"(")[2].decode("utf-8", "replace")
    marker = _read_marker(pid, agent)
    return Process(pid, int(rest[15]), int(parent), int(session), state.decode(), name, marker)


def _read_marker(pid: int, agent: str) -> str:
    marked = read_variable(pid, AGENT_VARIABLE) == agent and _is_of_our_user(pid)
    return read_variable(pid, SHARD_VARIABLE) if marked else ""


def _is_of_our_user(pid: int) -> bool:
    """By its status: the owner of its directory is root for whoever forbids to be looked at."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(b"Uid:")), -1) == os.getuid()
    return False


def read_variable(pid: int, name: str) -> str:
    """Of a process's environment as it was started with; empty where it is not there, or not ours to read."""
    start = f"{name}=".encode()
    with suppress(OSError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((each[len(start) :].decode("utf-8", "replace") for each in variables if each.startswith(start)), "")
    return ""


def tracks_resources(pid: int) -> bool:
    """Whether it is Python's multiprocessing.resource_tracker, which ends by itself when those that it serves are gone.

    Killed with them it leaves /dev/shm full: vLLM 0.32.0, run, 160 MB a kill.
    """
    with suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def started_at(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return None


def lives(process: ProcessId) -> bool:
    """Whether it is there and no zombie."""
    with suppress(OSError):
        state, *rest = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(rest[18]) == process.start and state not in (b"Z", b"X")
    return False


def send_signal(process: ProcessId, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError as error:
            if error.errno == errno.ENOSYS and started_at(process.pid) == process.start:
                os.kill(process.pid, number)  # before Linux 5.3 there is nothing safer
            return
        try:
            if started_at(process.pid) == process.start:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def read_boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def open_sockets(table: Mapping[int, Process]) -> dict[int, Process]:
    """Who holds each socket, by its inode."""
    held: dict[int, Process] = {}
    for process in table.values():
        for inode in sockets_of(process.pid):
            held.setdefault(inode, process)
    return held


def sockets_of(pid: int) -> frozenset[int]:
    """The inodes of the sockets that a process holds."""
    found: set[int] = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return frozenset(found)

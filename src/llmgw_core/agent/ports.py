"""TCP ports of this machine: whether one is free, and who listens.

Rule: a port is taken as an engine would find it, which binds with SO_REUSEADDR: TIME_WAIT is not in use.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress

from llmgw_core.agent.processes import open_sockets, sockets_of
from llmgw_core.plan.shard_tree import Process

_LISTEN = "0A"


def port_trouble(port: int, address: str = "0.0.0.0") -> str:
    """Why nobody can listen there now; empty: one can."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"port {port} is in use"
            return f"port {port}: {error.strerror}"
    return ""


def listeners() -> dict[int, frozenset[int]]:
    """By port, the inodes of the sockets that listen there, at whatever address."""
    found: dict[int, set[int]] = {}
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(name, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN:
                    found.setdefault(int(words[1].rpartition(":")[2], 16), set()).add(int(words[9]))
    return {port: frozenset(inodes) for port, inodes in found.items()}


def describe_stranger(port: int, inodes: Collection[int], table: Mapping[int, Process]) -> str:
    """`something else listens (pid 123 nginx)`."""
    held = open_sockets(table)
    who = next((held[inode] for inode in inodes if inode in held), None)
    return f"port {port}: something else listens ({f'pid {who.pid} {who.name}' if who else 'nobody knows who'})"


def holds_listener(port: int, pid: int) -> bool:
    """Whether this process itself holds all that listens at `port`."""
    inodes = listeners().get(port, frozenset())
    return bool(inodes) and inodes <= sockets_of(pid)


def judge_listener(port: int, table: Mapping[int, Process], family: Collection[Process]) -> tuple[str, frozenset[int]]:
    """Why what listens at `port` is not the family's, and the sockets; empty: it is."""
    inodes = listeners().get(port, frozenset())
    if not inodes:
        return f"port {port}: nothing listens", inodes
    strange = inodes - open_sockets({each.pid: each for each in family}).keys()
    if not strange:
        return "", inodes
    pids = {each.pid for each in family}
    others = {pid: each for pid, each in table.items() if pid not in pids}
    return describe_stranger(port, strange, others), inodes

"""Ports that are given to nobody else at the same time, in this run of tests or another; for the demo, too.

All are below those that outgoing connections take: what is free now is so after a restart, and who calls a port at
which nobody listens cannot get itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import cycle

from attrs import frozen

HOST = "127.0.0.1"


@frozen
class Blocks:
    """So many ports each, one after the other."""

    first: int
    size: int
    count: int


LARGE = Blocks(20_000, 1_100, 11)
"""For a fleet."""
SMALL = Blocks(11_000, 250, 28)
"""For one process. They end where an agent's own begin."""


def claim(blocks: Blocks) -> socket.socket:
    """Bound to the first port of a block, which is the caller's until it is closed."""
    for turn in range(blocks.count):
        guard = socket.socket()
        try:
            guard.bind((HOST, blocks.first + blocks.size * ((os.getpid() + turn) % blocks.count)))
        except OSError:
            guard.close()
        else:
            return guard
    raise AssertionError(f"all {blocks.count} blocks of ports from {blocks.first} are taken")


def first_port(guard: socket.socket) -> int:
    port: int = guard.getsockname()[1]
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def _own_ports() -> Iterator[int]:
    guard = claim(SMALL)
    first = first_port(guard)
    yield from cycle(range(first + 1, first + SMALL.size))


_OWN = _own_ports()


def free_port() -> int:
    """Another one each time, of this process's own."""
    return next(filter(is_free, _OWN))

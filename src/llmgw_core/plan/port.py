"""Which ports of a node an attempt gets.

In: the node's ranges, what is taken, the generation.  Out: a port, or none.  Pure.
Rules: each generation begins elsewhere in the range and avoids the ports of the one before, since what was there may
linger; where only those are left, they are better than none. Rendezvous ports are 20 apart: SGLang opens up to 13
after its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llmgw_core.model.node import PortRange

RENDEZVOUS_STEP = 20
_SERVE_STRIDE = 37
_RENDEZVOUS_STRIDE = 7


def serve_port(ports: PortRange, taken: Collection[int], generation: int, last: Collection[int] = ()) -> int | None:
    spare = None
    for port in _turned(range(ports.first, ports.last + 1), (generation - 1) * _SERVE_STRIDE):
        if port in taken:
            continue
        if port not in last:
            return port
        spare = port if spare is None else spare
    return spare


def rendezvous_port(
    ports: PortRange, taken: Collection[int], generation: int, last: Collection[int] = ()
) -> int | None:
    """The first of as many ports as the shards may open around it."""
    spare = None
    for port in _turned(range(ports.first, ports.last + 1, RENDEZVOUS_STEP), (generation - 1) * _RENDEZVOUS_STRIDE):
        if any(each in taken for each in range(port, min(port + RENDEZVOUS_STEP, ports.last + 1))):
            continue
        if port not in last:
            return port
        spare = port if spare is None else spare
    return spare


def _turned(ports: range, by: int) -> Iterator[int]:
    start = by % len(ports)
    yield from ports[start:]
    yield from ports[:start]

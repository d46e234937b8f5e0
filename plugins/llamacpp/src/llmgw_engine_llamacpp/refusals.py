"""Why llama.cpp cannot run a replica that is valid as such.

In: a replica.  Out: a clause with the numbers for each reason.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmgw_core.engine import ReplicaSpec


def refusals(replica: ReplicaSpec) -> tuple[str, ...]:
    return (*_parallel(replica), *_names(replica), *_workers(replica))


def _parallel(replica: ReplicaSpec) -> Iterator[str]:
    parallel = replica.parallel
    if parallel.tensor > 1:
        yield f"tensor parallel size {parallel.tensor}: llama.cpp divides by layers; leave it at 1"
    if parallel.data > 1:
        yield f"data parallel size {parallel.data}: one llama-server holds one copy; ask for more replicas"
    if parallel.expert > 1:
        yield f"expert parallel size {parallel.expert}: llama.cpp has no expert parallelism"


def _names(replica: ReplicaSpec) -> Iterator[str]:
    if "," in replica.served_name:
        yield f"its served name {replica.served_name!r} has a comma, which llama-server reads as several names"


def _workers(replica: ReplicaSpec) -> Iterator[str]:
    """ggml-rpc-server binds and calls IPv4 addresses only."""
    for rank, slot in enumerate(replica.slots[1:], 1):
        yield from (
            f"worker {rank} has the IPv6 address {address}; RPC workers speak IPv4 only"
            for address in dict.fromkeys((slot.listen.address, slot.address))
            if ":" in address
        )

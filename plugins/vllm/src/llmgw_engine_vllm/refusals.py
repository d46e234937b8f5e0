"""Why vLLM cannot run a replica that is valid as such.

In: a replica.  Out: clauses with the numbers.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmgw_core.engine import ReplicaSpec
from llmgw_engine_vllm.layout import ranks_span_nodes


def refusals(replica: ReplicaSpec) -> tuple[str, ...]:
    return (*_wrong_sizes(replica), *_wrong_words(replica))


def _wrong_sizes(replica: ReplicaSpec) -> Iterator[str]:
    parallel, nodes = replica.parallel, replica.nodes
    gpus = sum(len(slot.gpus) for slot in replica.slots)
    sizes = f"tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data} = {parallel.world}"
    if parallel.world < nodes:
        yield f"{sizes} leaves some of its {nodes} nodes without work"
    if gpus and parallel.world > gpus:
        yield f"{sizes} exceeds its {gpus} GPUs"
    # As vLLM's public source has it (nnodes_within_dp), not tried: a node belongs to one data-parallel rank, so ranks
    # that span nodes need the same number each.
    if ranks_span_nodes(replica) and nodes % parallel.data:
        yield f"data {parallel.data} neither divides {nodes} nodes nor is a multiple of them"
    # vLLM 0.32.0: --enable-expert-parallel is a switch; the size is always tensor x data.
    if parallel.expert not in (1, parallel.tensor * parallel.data):
        yield f"expert {parallel.expert} is neither 1 nor tensor x data = {parallel.tensor * parallel.data}"


def _wrong_words(replica: ReplicaSpec) -> Iterator[str]:
    for name in ("source", "served_name"):
        text = getattr(replica, name)
        if text.startswith("-"):
            yield f"its {name.replace('_', ' ')} {text!r} would be read as a flag"
    if "VLLM_PORT" in replica.extra_env:
        # vLLM takes it as the base of its internal ports, which then meet those of other shards.
        yield "VLLM_PORT in its environment sets vLLM's internal ports; the API's port is the slot's"
    if replica.rendezvous and replica.rendezvous.port == 65535 and replica.parallel.data > 1:
        yield "its dist-init port 65535 leaves no next port for the data-parallel coordinator"

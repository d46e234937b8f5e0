"""How vLLM divides a replica over nodes.

In: a replica.  Out: the layout, as flags need it.  Pure.
Rule: where each data-parallel rank fits in a node, the nodes hold whole ranks; else one rank spans nodes.
"""

from __future__ import annotations

from llmgw_core.engine import ReplicaSpec


def ranks_span_nodes(replica: ReplicaSpec) -> bool:
    """Whether tensor × pipeline of one data-parallel rank goes over several nodes (`--nnodes`, from 0.11.2)."""
    return replica.nodes > 1 and replica.parallel.data % replica.nodes != 0


def local_ranks(replica: ReplicaSpec) -> int:
    """How many data-parallel ranks each node holds, where ranks do not span nodes."""
    return replica.parallel.data // replica.nodes

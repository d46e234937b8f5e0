"""How SGLang takes data parallelism: as copies of the model, or within the attention of one copy.

In: a replica.  Out: which of the two.  Pure.
Rule: copies where the GPUs of one node hold them all, DP attention else: over nodes SGLang knows nothing else, and it
is the only way in which `data` groups fit on fewer than tensor × pipeline × data GPUs.
"""

from __future__ import annotations

from llmgw_core.engine import ReplicaSpec


def has_dp_attention(replica: ReplicaSpec) -> bool:
    """Whether the data-parallel groups share the GPUs of one tensor-parallel group."""
    gpus = sum(len(slot.gpus) for slot in replica.slots)
    return replica.parallel.data > 1 and (replica.nodes > 1 or 0 < gpus < replica.parallel.world)

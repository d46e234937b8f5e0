"""What to ask a shard of the simulated engine, and what its answer means.

In: a shard, a reply.  Out: `Probe`, `Health`.  Pure and total.
"""

from __future__ import annotations

from llmgw_core.engine import Health, Phase, Probe, Progress, Reply, ReplyKind, Shard

_PROGRESS = Progress("/metrics", running=("sim:requests_running",), counters=("sim:tokens_total",))


def health_probe(shard: Shard) -> Probe | None:
    if not shard.is_head:
        return None
    progress = _PROGRESS if shard.replica.settings.metrics else None
    return Probe(shard.slot.listen.from_own_node, "/health", progress=progress)


def read_health(shard: Shard, reply: Reply) -> Health:
    waiting = Phase.UNREADY if reply.seen_ready else Phase.STARTING
    if not shard.is_head:
        return Health(Phase.READY, "a worker is watched as a process only")
    if reply.kind is not ReplyKind.ANSWERED:
        return Health(waiting, f"port {shard.slot.listen.port}: {reply.kind.value}")
    if reply.status == 200:
        return Health(Phase.READY)
    return Health(waiting, "it loads the model" if reply.status == 503 else f"/health answers {reply.status}")

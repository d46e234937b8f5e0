"""What to ask a vLLM shard, and what its answer means.

In: a shard, a reply.  Out: `Probe`, `Health`.  Pure and total.
vLLM 0.32.0, run: nothing listens before it is ready; then /health answers 200 with an empty body, and 503 from the
moment its engine core is dead. Workers serve nothing.
"""

from __future__ import annotations

from llmgw_core.engine import Health, Phase, Probe, Progress, Reply, ReplyKind, Shard

# Of 0.32.0's /metrics, which needs no key. The counter is a histogram's: its samples carry the suffix.
_PROGRESS = Progress(
    path="/metrics",
    running=("vllm:num_requests_running",),
    counters=("vllm:iteration_tokens_total_count",),
)


def health_probe(shard: Shard) -> Probe | None:
    if not shard.is_head:
        return None
    return Probe(shard.slot.listen.from_own_node, "/health", progress=_PROGRESS)


def read_health(shard: Shard, reply: Reply) -> Health:
    if not shard.is_head:
        return Health(Phase.READY, "a headless worker is watched as a process only")
    waiting = Phase.UNREADY if reply.seen_ready else Phase.STARTING
    if reply.kind is not ReplyKind.ANSWERED:
        return Health(waiting, f"port {shard.slot.listen.port}: {reply.kind.value}")
    if reply.status == 200:
        return Health(Phase.READY)
    if reply.status == 503:
        # The process ends some seconds later, with exit code 0.
        return Health(Phase.FAILED, "its engine core is dead: /health answers 503")
    return Health(waiting, f"/health answers {reply.status}; is this vLLM?")

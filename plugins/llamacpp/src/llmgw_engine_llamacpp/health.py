"""What to ask a llama.cpp shard, and what its answer means.

In: a shard, a reply.  Out: `Probe`, `Health`.  Pure and total.
llama-server opens its port before it loads: refused, then 503, then 200, which stays while all slots are busy.
"""

from __future__ import annotations

from llmgw_core.engine import Health, Phase, Probe, Progress, Reply, ReplyKind, Shard

# Documented by /metrics itself, b10434.
_PROGRESS = Progress(
    path="/metrics",
    running=("llamacpp:requests_processing",),
    counters=("llamacpp:tokens_predicted_total", "llamacpp:prompt_tokens_total", "llamacpp:n_decode_total"),
)


def health_probe(shard: Shard) -> Probe | None:
    """A worker serves one client at a time and keeps one waiting: a probe of its port would disturb the head."""
    if not shard.is_head:
        return None
    progress = _PROGRESS if shard.replica.settings.metrics else None
    # b10434, run: with an API key /health answers without it, and /metrics only with it.
    return Probe(shard.slot.listen.from_own_node, "/health", progress=progress, api_key=shard.replica.api_key)


def read_health(shard: Shard, reply: Reply) -> Health:
    waiting = Phase.UNREADY if reply.seen_ready else Phase.STARTING
    if not shard.is_head:
        return Health(Phase.READY, "an RPC worker is watched as a process only")
    if reply.kind is not ReplyKind.ANSWERED:
        return Health(waiting, f"port {shard.slot.listen.port}: {reply.kind.value}")
    if reply.status == 200:
        return Health(Phase.READY)
    if reply.status == 503:
        return Health(waiting, "it loads the model" if "Loading model" in reply.body else "/health answers 503")
    return Health(waiting, f"/health answers {reply.status}; is this llama-server?")

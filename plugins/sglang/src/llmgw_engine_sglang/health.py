"""What to ask an SGLang shard, and what its answer means.

In: a shard, a reply.  Out: `Probe`, `Health`.  Pure and total.
0.5.23, run: refused while it loads, /health 503 during the warm-up (while /v1/models answers 200 already), then 200;
503 again from SIGTERM on, while requests drain. From 0.5.1 /health generates a token. Rule: /health is asked in every
version; before 0.5.1 it tells only that the server's front answers.
A worker opens its port with a server that answers 200 to /health whatever happens, and is not asked.
"""

from __future__ import annotations

from llmgw_core.engine import Health, Phase, Probe, Progress, Reply, ReplyKind, Shard

# Longer than SGLANG_HEALTH_CHECK_TIMEOUT, 20 s by default, after which SGLang itself answers 503.
_TIMEOUT_S = 25.0
# The same names in 14 versions; gauges, which change while tokens are generated.
_PROGRESS = Progress(
    path="/metrics",
    running=("sglang:num_running_reqs",),
    counters=("sglang:token_usage", "sglang:gen_throughput"),
)


def health_probe(shard: Shard) -> Probe | None:
    if not shard.is_head:
        return None
    progress = _PROGRESS if shard.replica.settings.metrics else None
    return Probe(shard.slot.listen.from_own_node, "/health", _TIMEOUT_S, progress)


def read_health(shard: Shard, reply: Reply) -> Health:
    if not shard.is_head:
        return Health(Phase.READY, "a worker is watched as a process only")
    waiting = Phase.UNREADY if reply.seen_ready else Phase.STARTING
    if reply.kind is not ReplyKind.ANSWERED:
        return Health(waiting, f"port {shard.slot.listen.port}: {reply.kind.value}")
    if reply.status == 200:
        return Health(Phase.READY)
    if reply.status == 503:
        return Health(waiting, "it generates nothing: /health answers 503" if reply.seen_ready else "it warms up")
    return Health(waiting, f"/health answers {reply.status}; is this SGLang?")

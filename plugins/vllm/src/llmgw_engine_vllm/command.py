"""The command of one vLLM shard.

In: a shard; the flags that the installed vLLM documents, where known.  Out: a `Command`.  Pure.
Rules: the model is positional and first, since flags with several values would swallow it; full canonical names only;
the API key goes by environment; nothing is passed about request logging, which is off by default from 0.10.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from llmgw_core.engine import Command, FlagTable, Settings, Shard, Speculative, Stop, StopStep
from llmgw_core.engine.nccl import group_env
from llmgw_engine_vllm.info import PROGRAM
from llmgw_engine_vllm.layout import local_ranks, ranks_span_nodes

# How long requests in flight may go on after SIGTERM, where vLLM can wait for them (design: 120 s, then 30 s more).
_DRAIN_S = 120
_GRACE_S = 30.0


def build_command(shard: Shard, flags: FlagTable | None) -> Command:
    replica = shard.replica
    drains = flags is not None and flags.documents("--shutdown-timeout")
    args = [
        *("serve", replica.source, "--served-model-name", replica.served_name),
        *("--host", shard.slot.listen.address, "--port", str(shard.slot.listen.port)),
        *_parallel(shard),
        *_settings(replica.settings),
    ]
    if drains:
        # vLLM 0.18.0 and later: without it SIGTERM aborts requests in flight.
        args += ["--shutdown-timeout", str(_DRAIN_S)]
    return Command(
        program=PROGRAM,
        executable=shard.slot.executable,
        args=tuple(args),
        extra_args=replica.extra_args,
        env=_env(shard),
        secret_env={"VLLM_API_KEY": replica.api_key} if replica.api_key and shard.is_head else {},
        # Inherited ones would be another shard's. VLLM_PORT is the base of internal ports, never the API's.
        unset_env=("VLLM_PORT", "VLLM_HOST_IP", "VLLM_API_KEY", "VLLM_DP_*"),
        # Workers compute for requests that the head still drains.
        stop=Stop((StopStep("SIGTERM", _GRACE_S + _DRAIN_S * drains),), head_first=True, drains=drains),
    )


def _parallel(shard: Shard) -> Iterator[str]:
    parallel = shard.replica.parallel
    sizes = {
        "--tensor-parallel-size": parallel.tensor,
        "--pipeline-parallel-size": parallel.pipeline,
        "--data-parallel-size": parallel.data,
    }
    for flag, size in sizes.items():
        if size > 1:
            yield from (flag, str(size))
    if parallel.expert > 1:
        yield "--enable-expert-parallel"
    if shard.replica.rendezvous and shard.replica.nodes > 1:
        yield from _over_nodes(shard)
    if not shard.is_head:
        # vLLM 0.32.0: a rank above 0 without it exits with 1 and leaves the head hanging.
        yield "--headless"


def _over_nodes(shard: Shard) -> Iterator[str]:
    replica = shard.replica
    meeting = replica.rendezvous
    assert meeting is not None  # noqa: S101 - a replica of several nodes always has one
    spans = ranks_span_nodes(replica)
    if spans:
        yield from ("--nnodes", str(replica.nodes), "--node-rank", str(shard.node_rank))
        yield from ("--master-addr", meeting.address, "--master-port", str(meeting.port))
    if replica.parallel.data > 1:
        # The master port is taken where ranks span nodes; ports after the dist-init port are left free for it.
        yield from ("--data-parallel-address", meeting.address)
        yield from ("--data-parallel-rpc-port", str(meeting.port + spans))
    if not spans:
        local = local_ranks(replica)
        yield from ("--data-parallel-size-local", str(local))
        if not shard.is_head:
            yield from ("--data-parallel-start-rank", str(shard.node_rank * local))


def _settings(settings: Settings) -> Iterator[str]:
    valued = {
        "--max-model-len": settings.context_length,
        "--max-num-seqs": settings.max_sequences,
        "--gpu-memory-utilization": settings.gpu_memory_fraction,
        "--dtype": settings.dtype,
        "--quantization": settings.quantization,
        "--kv-cache-dtype": settings.kv_cache_dtype,
        "--chat-template": settings.chat_template,
        "--tool-call-parser": settings.tool_call_parser,
        "--reasoning-parser": settings.reasoning_parser,
    }
    for flag, value in valued.items():
        if value is not None:
            yield from (flag, str(value))
    if settings.tool_call_parser is not None:
        # vLLM 0.9.2 to 0.32.0: a parser alone leaves tool_choice "auto" refused.
        yield "--enable-auto-tool-choice"
    if settings.prefix_caching is not None:
        yield "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching"
    if settings.trust_remote_code:
        yield "--trust-remote-code"
    if settings.speculative:
        yield from ("--speculative-config", _speculative(settings.speculative))


def _speculative(speculative: Speculative) -> str:
    """One JSON object from 0.8.5 on; `--speculative-model` and the like are gone."""
    config: dict[str, str | int] = {"method": speculative.method, "num_speculative_tokens": speculative.draft_tokens}
    if speculative.draft_source is not None:
        config["model"] = speculative.draft_source
    return json.dumps(config)


def _env(shard: Shard) -> dict[str, str]:
    slot = shard.slot
    env = group_env(shard)
    if shard.replica.nodes > 1:
        # Each node's own address, not the head's (vLLM 0.32.0, two nodes).
        env["VLLM_HOST_IP"] = slot.address
    if slot.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
    return {**env, **shard.replica.extra_env}

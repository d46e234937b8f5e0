"""The command of one SGLang shard.

In: a shard; the flags that the installed SGLang documents, where known.  Out: a `Command`.  Pure.
Rules: full canonical names only (`--tp-size`: `--tp` is an abbreviation in every version, and `--pp` an ambiguous one);
the API key stands in a file wherever SGLang reads one; all ranks get the same arguments but their own rank and place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from llmgw_core.engine import Command, File, FlagTable, Secret, Settings, Shard, Speculative, Stop, StopStep
from llmgw_core.engine.nccl import group_env
from llmgw_engine_sglang.executable import serve_words
from llmgw_engine_sglang.info import PROGRAM
from llmgw_engine_sglang.layout import has_dp_attention

# 0.5.23, run: SIGTERM lets requests in flight end, without a deadline, and an idle head is gone after 17 s.
_HEAD_STOP_S = 150.0
# 0.5.23, run: workers ignore SIGTERM and wait for the head's word; the head is gone before they are asked.
_WORKER_STOP_S = 10.0


def build_command(shard: Shard, flags: FlagTable | None) -> Command:
    replica, slot = shard.replica, shard.slot
    key_args, files = _api_key(shard, flags)
    args = (
        *serve_words(slot.executable),
        *("--model-path", replica.source, "--served-model-name", replica.served_name),
        *("--host", slot.listen.address, "--port", str(slot.listen.port)),
        *_parallel(shard, flags),
        *_settings(replica.settings),
        *key_args,
    )
    return Command(
        program=PROGRAM,
        executable=slot.executable,
        args=args,
        extra_args=replica.extra_args,
        env=_env(shard),
        unset_env=("SGLANG_HOST_IP",),
        files=files,
        stop=Stop(
            (StopStep("SIGTERM", _HEAD_STOP_S if shard.is_head else _WORKER_STOP_S),), head_first=True, drains=True
        ),
    )


def _api_key(shard: Shard, flags: FlagTable | None) -> tuple[tuple[str, ...], tuple[File, ...]]:
    """SGLang reads no key from the environment; `--config` is there from 0.5.3, and its YAML may be JSON."""
    key = shard.replica.api_key
    if key is None:
        return (), ()
    if flags is not None and not flags.documents("--config"):
        return ("--api-key", key.reveal()), ()
    # Its name must end in .yaml, and only one --config is taken.
    path = f"{shard.slot.directory}/sglang.yaml"
    return ("--config", path), (File(path, Secret(json.dumps({"api-key": key.reveal()}))),)


def _parallel(shard: Shard, flags: FlagTable | None) -> Iterator[str]:
    replica = shard.replica
    parallel = replica.parallel
    sizes = {"--tp-size": parallel.tensor, "--pp-size": parallel.pipeline, "--ep-size": parallel.expert}
    for flag, size in sizes.items():
        if size > 1:
            yield from (flag, str(size))
    if parallel.data > 1:
        yield from _data_parallel(parallel.data, has_dp_attention(replica), flags)
    if replica.rendezvous and replica.nodes > 1:
        yield from ("--dist-init-addr", str(replica.rendezvous))
        yield from ("--nnodes", str(replica.nodes), "--node-rank", str(shard.node_rank))


def _data_parallel(size: int, attention: bool, flags: FlagTable | None) -> Iterator[str]:
    if attention and flags is not None and flags.documents("--attn-dp-size"):
        # 0.5.23 deprecates the older way, which every other checked version needs.
        yield from ("--attn-dp-size", str(size))
        return
    yield from ("--dp-size", str(size))
    if attention:
        yield "--enable-dp-attention"


def _settings(settings: Settings) -> Iterator[str]:
    valued = {
        "--context-length": settings.context_length,
        "--max-running-requests": settings.max_sequences,
        "--mem-fraction-static": settings.gpu_memory_fraction,
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
    if settings.prefix_caching is False:
        # On by default in every version, without a flag that says so.
        yield "--disable-radix-cache"
    if settings.trust_remote_code:
        yield "--trust-remote-code"
    if settings.metrics:
        yield "--enable-metrics"
    if settings.speculative:
        yield from _speculative(settings.speculative)


def _speculative(speculative: Speculative) -> Iterator[str]:
    yield from ("--speculative-algorithm", speculative.method)
    if speculative.draft_source is not None:
        yield from ("--speculative-draft-model-path", speculative.draft_source)
    if speculative.method == "NGRAM":
        yield from ("--speculative-num-draft-tokens", str(speculative.draft_tokens))
        return
    # The number of steps must be given when the number of tokens is (0.4.6 to 0.5.9 assert it), and SGLang counts the
    # verified token too: a chain of n drafts is n steps and n + 1 tokens.
    yield from ("--speculative-num-steps", str(speculative.draft_tokens), "--speculative-eagle-topk", "1")
    yield from ("--speculative-num-draft-tokens", str(speculative.draft_tokens + 1))


def _env(shard: Shard) -> dict[str, str]:
    slot = shard.slot
    env = group_env(shard)
    if shard.replica.nodes > 1:
        # 0.5.23, two nodes: each node's own address.
        env["SGLANG_HOST_IP"] = slot.address
    if slot.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
    return {**env, **shard.replica.extra_env}

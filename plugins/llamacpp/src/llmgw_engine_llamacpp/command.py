"""The command of one shard of a llama.cpp replica: llama-server for the head, ggml-rpc-server for each worker.

In: a shard.  Out: a `Command`.  Pure.
Rules: long names only, which b10068, b10434 and b10991 all document; nothing is left to a default that changed between
versions (port, context, slots); the engine's own configuration outside the command line is shut out.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmgw_core.engine import (
    Command,
    Endpoint,
    FlagTable,
    LaunchOrder,
    ReplicaSpec,
    Settings,
    Shard,
    Speculative,
    Stop,
    StopStep,
)
from llmgw_engine_llamacpp.info import RPC_SERVER, SERVER, UNSET_ENV

# SIGTERM does not drain: an idle server ends at once, one with a stream at its next ping, one with a plain request
# only when the client leaves; the second SIGTERM ends it at once. A worker that goes first makes the head abort.
_STOP = Stop(steps=(StopStep("SIGTERM", 5.0), StopStep("SIGTERM", 5.0)), head_first=True, drains=False)

# How each ngram method calls the length of its draft; the methods with a draft model share --spec-draft-n-max.
_DRAFT_LENGTH = {
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}
_NGRAM_MOD_LEAST = 48
"""The default of --spec-ngram-mod-n-min (b10068 to b10991): a shorter draft is thrown away."""


def build_command(shard: Shard, flags: FlagTable | None = None) -> Command:
    return _build_head(shard, flags) if shard.is_head else _build_worker(shard)


def _build_head(shard: Shard, flags: FlagTable | None) -> Command:
    replica, slot = shard.replica, shard.slot
    config = f"{slot.directory}/config"
    return Command(
        program=SERVER,
        executable=slot.executable,
        args=(*_head_args(replica), *_ping(flags)),
        extra_args=replica.extra_args,
        # /etc/llama.cpp/config.ini cannot be shut out; XDG_CONFIG_HOME/llama.cpp/config.ini applies from b10434 on.
        env={"XDG_CONFIG_HOME": config, **_common_env(shard)},
        secret_env={} if replica.api_key is None else {"LLAMA_API_KEY": replica.api_key},
        unset_env=UNSET_ENV,
        directories=(config,),
        launch_order=LaunchOrder.WORKERS_FIRST,
        stop=_STOP,
    )


def _build_worker(shard: Shard) -> Command:
    listen = shard.slot.listen
    return Command(
        program=RPC_SERVER,
        executable=shard.slot.executable,
        args=("--host", listen.address, "--port", str(listen.port)),
        env=_common_env(shard),
        unset_env=UNSET_ENV,
        launch_order=LaunchOrder.WORKERS_FIRST,
        stop=_STOP,
        # Otherwise the end of the head's connection ends the worker too, by SIGPIPE.
        ignore_sigpipe=True,
    )


def _common_env(shard: Shard) -> dict[str, str]:
    """Without GPUs of its own a shard sees none, so that it takes no other replica's."""
    ours = {"CUDA_VISIBLE_DEVICES": ",".join(shard.slot.gpus), "GGML_NO_BACKTRACE": "1"}
    return {**ours, **shard.replica.extra_env}


def _head_args(replica: ReplicaSpec) -> Iterator[str]:
    yield from _source("--model", "--hf-repo", replica.source)
    yield from ("--alias", replica.served_name)
    listen = replica.slots[0].listen
    yield from ("--host", listen.address, "--port", str(listen.port))
    yield from _capacity(replica.settings)
    workers = (str(Endpoint(slot.address, slot.listen.port)) for slot in replica.slots[1:])
    if replica.nodes > 1:
        yield from ("--rpc", ",".join(workers))
    yield from _settings(replica.settings)
    if replica.settings.speculative:
        yield from _speculative(replica.settings.speculative)


def _source(path_flag: str, hub_flag: str, source: str) -> tuple[str, str]:
    is_path = source.startswith(("/", ".")) or source.endswith(".gguf")
    return (path_flag if is_path else hub_flag), source


def _capacity(settings: Settings) -> Iterator[str]:
    """Context and slots. With N slots each gets an Nth of --ctx-size, so a sequence's length is multiplied by N.

    Without a length it is the model's (`--ctx-size 0`), which the slots then share as one (--kv-unified), so that a
    sequence may still be as long. One slot by default: `-np` meant 1 up to 2025-08 and means 4 since.
    """
    slots = settings.max_sequences or 1
    yield from ("--ctx-size", str((settings.context_length or 0) * slots), "--parallel", str(slots))
    if settings.context_length is None and slots > 1:
        yield "--kv-unified"


def _settings(settings: Settings) -> Iterator[str]:
    if settings.kv_cache_dtype:
        yield from ("--cache-type-k", settings.kv_cache_dtype, "--cache-type-v", settings.kv_cache_dtype)
    if settings.prefix_caching is not None:
        yield "--cache-prompt" if settings.prefix_caching else "--no-cache-prompt"
    if settings.chat_template:
        yield from ("--chat-template-file", settings.chat_template)
    if settings.reasoning_parser:
        yield from ("--reasoning-format", settings.reasoning_parser)
    if settings.metrics:
        yield "--metrics"


def _ping(flags: FlagTable | None) -> Iterator[str]:
    """After SIGTERM a stream ends at the next ping; the default is 30 s. b9093 has no such flag, b10068 has it."""
    if flags is None or flags.documents("--sse-ping-interval"):
        yield from ("--sse-ping-interval", "1")


def _speculative(speculative: Speculative) -> Iterator[str]:
    methods = speculative.method.split(",")
    yield from ("--spec-type", speculative.method)
    for flag in dict.fromkeys(_DRAFT_LENGTH.get(method, "--spec-draft-n-max") for method in methods):
        yield from (flag, str(speculative.draft_tokens))
    if "ngram-mod" in methods and speculative.draft_tokens < _NGRAM_MOD_LEAST:
        yield from ("--spec-ngram-mod-n-min", str(speculative.draft_tokens))
    if speculative.draft_source:
        yield from _source("--spec-draft-model", "--spec-draft-hf", speculative.draft_source)

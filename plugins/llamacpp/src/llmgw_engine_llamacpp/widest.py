"""Replicas whose commands together hold every flag that this plugin passes. Never launched."""

from __future__ import annotations

from attrs import evolve

from llmgw_core.engine import Endpoint, Hca, Parallel, ReplicaSpec, Secret, Settings, Slot, Speculative
from llmgw_engine_llamacpp.info import RPC_SERVER, SERVER

_SETTINGS = Settings(
    context_length=8192,
    max_sequences=4,
    gpu_memory_fraction=0.9,
    dtype="bfloat16",
    quantization="q4_k_m",
    kv_cache_dtype="q8_0",
    prefix_caching=True,
    chat_template="/etc/llmgw/chat.jinja",
    tool_call_parser="hermes",
    reasoning_parser="deepseek",
    trust_remote_code=True,
    speculative=Speculative("draft-simple", 8, "/srv/models/draft.gguf"),
)


def widest_specs() -> tuple[ReplicaSpec, ...]:
    widest = ReplicaSpec(
        id="widest/0",
        engine="llamacpp",
        source="/srv/models/widest.gguf",
        served_name="widest",
        slots=(_slot(0, SERVER), _slot(1, RPC_SERVER)),
        rendezvous=Endpoint("10.0.0.1", 19000),
        parallel=Parallel(pipeline=2),
        settings=_SETTINGS,
        api_key=Secret("widest"),
        extra_env={"GGML_CUDA_NO_PINNED": "1"},
    )
    return (widest, *_alternatives(widest))


def _slot(rank: int, program: str) -> Slot:
    return Slot(
        executable=(program,),
        listen=Endpoint("0.0.0.0", 18000 + rank),
        address=f"10.0.0.{rank + 1}",
        directory=f"/var/lib/llmgw/widest-0-{rank}",
        interface="ib0",
        gpus=(f"GPU-{rank}",),
        hcas=(Hca("mlx5_2"),),
    )


def _alternatives(widest: ReplicaSpec) -> tuple[ReplicaSpec, ...]:
    """What cannot stand in one command with the widest: a hub's name, the other switch, each ngram method."""
    hub = evolve(
        widest,
        id="hub/0",
        source="ggml-org/models:Q8_0",
        settings=evolve(
            _SETTINGS,
            context_length=None,
            prefix_caching=False,
            metrics=False,
            speculative=Speculative("draft-simple", 8, "ggml-org/draft:Q8_0"),
        ),
    )
    every = Speculative("ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod", 16)
    return hub, evolve(widest, id="ngram/0", settings=evolve(_SETTINGS, speculative=every))

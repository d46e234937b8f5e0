"""Replicas whose commands together hold every flag that this plugin passes. Never launched."""

from __future__ import annotations

from attrs import evolve

from llmgw_core.engine import Endpoint, Hca, Parallel, ReplicaSpec, Secret, Settings, Slot, Speculative

# Values that every checked version lists.
_SETTINGS = Settings(
    context_length=32768,
    max_sequences=64,
    gpu_memory_fraction=0.9,
    dtype="bfloat16",
    quantization="fp8",
    kv_cache_dtype="fp8_e4m3",
    prefix_caching=False,
    chat_template="/etc/llmgw/chat.jinja",
    tool_call_parser="mistral",
    reasoning_parser="qwen3",
    trust_remote_code=True,
    speculative=Speculative("EAGLE3", 3, "/srv/models/draft"),
)


def widest_specs() -> tuple[ReplicaSpec, ...]:
    """Two nodes with DP attention; then two copies on one node, with the prefix cache."""
    widest = ReplicaSpec(
        id="widest/0",
        engine="sglang",
        source="/srv/models/widest",
        served_name="widest",
        slots=(_slot(0), _slot(1)),
        rendezvous=Endpoint("10.0.0.1", 19000),
        parallel=Parallel(tensor=8, pipeline=2, data=4, expert=8),
        settings=_SETTINGS,
        api_key=Secret("widest"),
        extra_env={"HF_HUB_OFFLINE": "1"},
    )
    copies = evolve(
        widest,
        id="copies/0",
        slots=(_slot(0),),
        rendezvous=None,
        parallel=Parallel(tensor=4, data=2),
        settings=evolve(_SETTINGS, prefix_caching=True),
    )
    return widest, copies


def _slot(rank: int) -> Slot:
    return Slot(
        executable=("python3", "-m", "sglang.launch_server"),
        listen=Endpoint("0.0.0.0", 18000 + rank),
        address=f"10.0.0.{rank + 1}",
        directory=f"/var/lib/llmgw/widest-0-{rank}",
        interface="ib0",
        gpus=tuple(f"GPU-{rank}-{index}" for index in range(8)),
        hcas=(Hca("mlx5_2"), Hca("mlx5_3")),
    )

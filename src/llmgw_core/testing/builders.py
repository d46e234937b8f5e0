"""Small valid values, of which a test changes what it is about."""

from __future__ import annotations

from typing import Any

from llmgw_core.model.replica import Endpoint, ReplicaSpec, Slot


def a_slot(rank: int = 0, gpus: int = 0, **changes: Any) -> Slot:
    """The slot of one rank, on a node of its own."""
    given: dict[str, Any] = {
        "executable": ("engine",),
        "listen": Endpoint("0.0.0.0", 18000),
        "address": f"192.0.2.{rank + 1}",
        "directory": f"/run/llmgw/{rank}",
        "gpus": tuple(f"GPU-{rank}-{index}" for index in range(gpus)),
    }
    return Slot(**{**given, **changes})


def a_replica(nodes: int = 1, gpus: int = 0, **changes: Any) -> ReplicaSpec:
    """A replica over so many nodes with so many GPUs each."""
    given: dict[str, Any] = {
        "id": "qwen3/1",
        "engine": "vllm",
        "source": "/models/qwen3",
        "served_name": "qwen3",
        "slots": tuple(a_slot(rank, gpus) for rank in range(nodes)),
        "rendezvous": Endpoint("192.0.2.1", 19000) if nodes > 1 else None,
    }
    return ReplicaSpec(**{**given, **changes})

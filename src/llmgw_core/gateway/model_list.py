"""`/v1/models`: the catalog's models, in OpenAI's form, with how ready each is. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from llmgw_core.model.route import ModelRoute

OWNER = "llmgw"


def list_models(routes: Iterable[ModelRoute], allowed: Container[str] | None) -> list[dict[str, Any]]:
    """By name; `allowed`: None for all."""
    return [tell_model(route) for route in routes if allowed is None or route.name in allowed]


def tell_model(route: ModelRoute) -> dict[str, Any]:
    """`max_model_len` as vLLM calls it; `ready`, `replicas` and `aliases` are our own."""
    told: dict[str, Any] = {"id": route.name, "object": "model", "created": route.created, "owned_by": OWNER}
    if route.context_length is not None:
        told["max_model_len"] = route.context_length
    told["ready"] = bool(route.targets)
    told["replicas"] = {"ready": len(route.targets), "wanted": len(route.targets) + len(route.absent)}
    if route.aliases:
        told["aliases"] = list(route.aliases)
    return told

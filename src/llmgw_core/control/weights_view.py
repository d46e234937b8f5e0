"""Where a model's weights are, by what each node's agent answered to the model's offers."""

from __future__ import annotations

from typing import Any

from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.observing import observe
from llmgw_core.control.plane import Plane
from llmgw_core.plan.where_weights import find_weights
from llmgw_core.wire.facts import clipped, fitting
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

LIST_BYTES = MESSAGE_LIMIT_BYTES // 2
REASON_CHARACTERS = 500


async def show_weights(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """Per node: whole, not whole with the reason, fetched by the engine, or not known."""
    model, world = argument(arguments, "model", str, ""), observe(plane)
    found = find_weights(world, model)
    if found.refusal:
        raise BadQuestion(clipped(found.refusal, REASON_CHARACTERS))
    nodes = [
        {
            "node": each.node,
            "state": world.nodes[each.node].state.value,
            "weights": each.weights.value,
            "reason": clipped(each.reason, REASON_CHARACTERS),
        }
        for each in found.nodes
    ]
    return {"model": model, "source": found.source, "nodes": fitting(nodes, LIST_BYTES, last=False)}

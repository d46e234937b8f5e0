"""On which nodes a model's weights are.

In: a world, a model.  Out: a word and a reason for each node.  Pure.
Rule: what a node has not answered is not known; a node that is away is told by what it said last.
"""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from llmgw_core.plan.world import ObservedNode, World

NO_ANSWER = "it has not answered yet"


class Weights(Enum):
    WHOLE = "whole"
    NOT_WHOLE = "not whole"
    FETCHED = "fetched"
    """The engine gets them from a hub: nobody looks."""
    UNKNOWN = "not known"


@frozen
class NodeWeights:
    node: str
    weights: Weights
    reason: str = ""


@frozen
class WhereWeights:
    source: str = ""
    nodes: tuple[NodeWeights, ...] = ()
    refusal: str = ""


def find_weights(world: World, model: str) -> WhereWeights:
    if world.catalog is None:
        return WhereWeights(refusal="no catalog was applied yet")
    if model not in world.catalog.models:
        known = ", ".join(sorted(world.catalog.models)) or "none"
        return WhereWeights(refusal=f"the catalog has no model {model} (there are: {known})")
    source = world.catalog.models[model].source
    keys = frozenset(offer.key for (name, _), offer in world.offers.items() if name == model)
    nodes = tuple(_weights_of(node, source, keys) for _, node in sorted(world.nodes.items()))
    return WhereWeights(source, nodes)


def _weights_of(node: ObservedNode, source: str, keys: frozenset[str]) -> NodeWeights:
    if not source.startswith("/"):
        return NodeWeights(node.name, Weights.FETCHED, "the engine fetches them itself")
    if node.facts is None:
        return NodeWeights(node.name, Weights.UNKNOWN, "it has not reported since the control plane started")
    answers = [answer for answer in node.facts.offers if answer.key in keys]
    if not answers:
        return NodeWeights(node.name, Weights.UNKNOWN, NO_ANSWER)
    trouble = next((answer.weights for answer in answers if answer.weights), "")
    return NodeWeights(node.name, Weights.NOT_WHOLE if trouble else Weights.WHOLE, trouble)

"""Where a model's weights are, in one word for each node."""

from typing import Any

import attrs
import pytest

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.launch import OfferChecked
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.where_weights import NodeWeights, Weights, find_weights
from llmgw_core.plan.world import ObservedNode, World
from llmgw_core.testing.made_world import a_catalog, a_profile, node_facts, offers_of

CATALOG = a_catalog({"qwen": (a_profile(), a_profile(gpus=1)), "other": a_profile()})
OFFERS = offers_of(CATALOG)
KEY = OFFERS["qwen", "qwen-1"].key


def world(catalog: Catalog | None = CATALOG, **nodes: ObservedNode) -> World:
    return World(catalog=catalog, offers=offers_of(catalog) if catalog else {}, nodes=nodes)


def node(*answers: OfferChecked, **changes: Any) -> ObservedNode:
    return ObservedNode("n", **{"state": NodeState.ONLINE, "facts": node_facts(offers=answers), **changes})


@pytest.mark.parametrize(
    ("seen", "weights", "reason"),
    [
        (node(OfferChecked(KEY)), Weights.WHOLE, ""),
        (node(OfferChecked(KEY, refusal="no such flag")), Weights.WHOLE, ""),
        (node(OfferChecked(KEY, weights="/m is missing")), Weights.NOT_WHOLE, "/m is missing"),
        (node(OfferChecked(KEY), state=NodeState.LOST), Weights.WHOLE, ""),
        (node(), Weights.UNKNOWN, "it has not answered yet"),
        (node(OfferChecked("another's")), Weights.UNKNOWN, "it has not answered yet"),
        (node(facts=None), Weights.UNKNOWN, "it has not reported since the control plane started"),
    ],
)
def test_a_nodes_word_is_what_it_answered(seen: ObservedNode, weights: Weights, reason: str) -> None:
    assert find_weights(world(n=seen), "qwen").nodes == (NodeWeights("n", weights, reason),)


def test_what_an_engine_fetches_nobody_looks_at() -> None:
    models = {"hub": attrs.evolve(CATALOG.models["qwen"], source="org/name")}
    found = find_weights(world(Catalog(models, CATALOG.profiles), n=node()), "hub")
    assert (found.source, found.nodes[0].weights) == ("org/name", Weights.FETCHED)


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    assert find_weights(world(), "qwem").refusal == "the catalog has no model qwem (there are: other, qwen)"
    assert find_weights(world(None), "qwen").refusal == "no catalog was applied yet"


def test_nodes_stand_in_the_order_of_their_names() -> None:
    there = world(b=attrs.evolve(node(), name="b"), a=attrs.evolve(node(), name="a"))
    assert [each.node for each in find_weights(there, "other").nodes] == ["a", "b"]

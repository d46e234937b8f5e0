"""Why a model's replicas are where they are, or nowhere.

In: a world, a model.  Out: per profile and node the first thing that speaks against it.  Pure.
Rules: the filters are those by which placing goes, and what is taken is what is taken now.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Offer
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.offer import offers_by_model
from llmgw_core.plan.placement import Placer
from llmgw_core.plan.room import survey
from llmgw_core.plan.roster import ordinal_of
from llmgw_core.plan.shortage import render_shortage
from llmgw_core.plan.sighting import find_stale
from llmgw_core.plan.world import World


@frozen
class NodeExplained:
    """What one node says to one profile."""

    node: str
    refusal: str = ""
    """Goes on after the node's name: `has 6 free GPUs of 8`; empty: it could take a shard more."""


@frozen
class ProfileExplained:
    profile: str
    has_room: bool
    """Whether one replica more has a place."""
    summary: str
    """`needs 2 nodes with 8 free GPUs on one fabric; ib-a has 1 (gpu-03 is lost), ib-b has none`."""
    nodes: tuple[NodeExplained, ...]


@frozen
class Explanation:
    model: str
    refusal: str = ""
    """Why there is nothing to explain."""
    profiles: tuple[ProfileExplained, ...] = ()
    """The preferred first."""
    placed: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By replica, its nodes; empty for one that has no place."""
    draining: tuple[str, ...] = ()
    """Nodes that take nothing new, for this model or any."""


def explain(world: World, model: str) -> Explanation:
    """For one more replica of the model, as things are."""
    if world.catalog is None:
        return Explanation(model, "no catalog was applied yet")
    if model not in world.catalog.models:
        known = ", ".join(sorted(world.catalog.models)) or "none"
        return Explanation(model, f"the catalog has no model {model} (there are: {known})")
    placer = placer_of(world)
    offers = offers_by_model(world.catalog, world.offers)[model]
    like = _like_those_of(world, model)
    return Explanation(
        model,
        profiles=tuple(_explain(placer, offer, like) for offer in offers),
        placed={
            record.id: tuple(place.node for place in record.assignment.launch.places) if record.assignment else ()
            for record in sorted(world.records.values(), key=lambda each: (each.model, ordinal_of(each.id)))
            if record.model == model and not record.retired
        },
        draining=tuple(sorted(name for name, node in world.nodes.items() if node.draining)),
    )


def placer_of(world: World) -> Placer:
    """What is free now, beside all that is decided and seen."""
    offers = offers_by_model(world.catalog, world.offers) if world.catalog is not None else {}
    launches = [each.launch for record in world.records.values() for each in record.attempts]
    stale = tuple(find_stale(world.nodes, world.records))
    return Placer(survey(world.nodes, launches, stale), offers, world.refuted)


def _like_those_of(world: World, model: str) -> ReplicaRecord:
    """One more replica, against which speaks what nodes have refused to the others."""
    records = [record for record in world.records.values() if record.model == model and record.refused_by]
    marks = {mark: digest for record in records for mark, digest in record.refused_by.items()}
    failure = next((record.last_failure for record in records if record.last_failure is not None), None)
    return ReplicaRecord("", model, refused_by=marks, last_failure=failure)


def _explain(placer: Placer, offer: Offer, like: ReplicaRecord) -> ProfileExplained:
    shortage = placer.shortage(offer, like)
    refused = {each.node: each.reason for each in shortage.all_refused}
    nodes = tuple(NodeExplained(name, refused.get(name, "")) for name in placer.rooms.by_name)
    has_room = placer.has_place(offer, like)
    return ProfileExplained(offer.profile_name, has_room, render_shortage(shortage), nodes)

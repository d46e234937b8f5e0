"""Small worlds for the planner: nodes, catalogs, offers, of which a test changes what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve

from llmgw_core.model.catalog import Catalog, Model, Profile
from llmgw_core.model.launch import Launch, Offer, OfferChecked
from llmgw_core.model.node import EngineFound, Fabric, Found, Gpu, GpuReport, IbReport, NodeFacts
from llmgw_core.model.replica import Hca
from llmgw_core.model.shard import ShardPhase, ShardStatus
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.world import Decision, ObservedNode, World

NOW = 1_700_000_000.0


def a_profile(nodes: int = 1, gpus: int = 0, **changes: Any) -> Profile:
    return Profile(**{"engine": "sim", "nodes": nodes, "gpus_per_node": gpus, **changes})


def a_catalog(models: Mapping[str, Profile | tuple[Profile, ...]], replicas: int = 1) -> Catalog:
    """Each model with profiles of its own, named `model-0`, `model-1`, …"""
    profiles: dict[str, Profile] = {}
    entries: dict[str, Model] = {}
    for name, given in models.items():
        each = given if isinstance(given, tuple) else (given,)
        named = {f"{name}-{index}": profile for index, profile in enumerate(each)}
        profiles |= named
        entries[name] = Model(f"/models/{name}", tuple(named), replicas)
    return Catalog(entries, profiles)


def an_offer(model: str, source: str, name: str, profile: Profile) -> Offer:
    key = hashlib.sha256(repr((model, source, name, profile)).encode()).hexdigest()[:16]
    return Offer(key, model, source, name, profile)


def offers_of(catalog: Catalog) -> dict[tuple[str, str], Offer]:
    return {
        (name, profile): an_offer(name, model.source, profile, catalog.profiles[profile])
        for name, model in catalog.models.items()
        for profile in model.profiles
    }


def some_gpus(count: int, memory_mib: int | None = 81920) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, f"GPU-{index}", memory_total_mib=memory_mib) for index in range(count))


def gpu_report(gpus: Iterable[Gpu]) -> GpuReport:
    listed = tuple(gpus)
    return GpuReport(Found.SOME if listed else Found.NONE, listed)


def node_facts(gpus: int = 8, fabrics: Iterable[str] = (), version: str = "1.0", **changes: Any) -> NodeFacts:
    """A node with an engine `sim`, whose help is as its version."""
    given: dict[str, Any] = {
        "agent_version": "1",
        "gpus": gpu_report(some_gpus(gpus)),
        "infiniband": IbReport(Found.NONE),
        "fabrics": tuple(Fabric(name, (Hca("mlx5_0"), Hca("mlx5_1"))) for name in fabrics),
        "engines": (EngineFound("sim", "/usr/bin/sim", version, f"digest of {version}"),),
        "address": "192.0.2.1",
        "interface": "eth0",
    }
    return NodeFacts(**{**given, **changes})


def accepting(facts: NodeFacts, offers: Iterable[Offer], **changes: Any) -> NodeFacts:
    """A node that accepts the offers."""
    return evolve(facts, offers=(*facts.offers, *(OfferChecked(offer.key, **changes) for offer in offers)))


def seen_node(name: str, facts: NodeFacts | None = None, **changes: Any) -> ObservedNode:
    given: dict[str, Any] = {
        "state": NodeState.ONLINE,
        "facts": node_facts() if facts is None else facts,
        "shards": (),
        "settled": True,
        "last_heard": NOW,
    }
    return ObservedNode(name, **{**given, **changes})


def a_world(catalog: Catalog, nodes: Iterable[ObservedNode], **changes: Any) -> World:
    """Nodes that accept all that the catalog offers, and have not answered anything else."""
    offers = offers_of(catalog)
    answered = [
        evolve(node, facts=accepting(node.facts, offers.values())) if node.facts and not node.facts.offers else node
        for node in nodes
    ]
    given: dict[str, Any] = {
        "wanted": {name: model.replicas for name, model in catalog.models.items()},
        "offers": offers,
        "nodes": {node.name: node for node in answered},
        "now": NOW,
    }
    return World(catalog, **{**given, **changes})


def decided(world: World, decision: Decision) -> World:
    """The world with what was decided stored."""
    return evolve(world, records={**world.records, **{record.id: record for record in decision.records}})


def with_node(world: World, name: str, **changes: Any) -> World:
    return evolve(world, nodes={**world.nodes, name: evolve(world.nodes[name], **changes)})


def status_of(launch: Launch, rank: int, phase: ShardPhase, **changes: Any) -> ShardStatus:
    """What the node says of a shard of the launch."""
    place = launch.places[rank]
    given: dict[str, Any] = {"gpus": place.gpus, "port": place.port, "help_digest": "digest of 1.0"}
    return ShardStatus(launch.replica, launch.generation, rank, phase, **{**given, **changes})


def as_reported(world: World, phase: ShardPhase = ShardPhase.READY) -> World:
    """The world in which every shard that was placed is so far, and nothing else runs."""
    shards: dict[str, list[ShardStatus]] = {name: [] for name in world.nodes}
    for record in world.records.values():
        for each in record.attempts:
            for rank, place in enumerate(each.launch.places):
                shards[place.node].append(status_of(each.launch, rank, phase))
    nodes = {
        name: node if node.shards is None else evolve(node, shards=tuple(shards[name]))
        for name, node in world.nodes.items()
    }
    return evolve(world, nodes=nodes)

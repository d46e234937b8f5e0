"""What would become of a world in which everybody does at once what is asked of them.

In: a world.  Out: the passes that would follow, each with the world after it.  Pure.
Rules: whatever is to run is ready at once, and whatever is to go is gone at once; time stands still, so that nobody's
back-off ends and nothing is late; nodes that do not speak stay silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from llmgw_core.model.shard import ShardPhase, ShardStatus
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.world import Decision, ObservedNode, World

PASSES_OF_A_REPLICA = 8
"""More than any takes, so that an error here ends."""


def rehearse(world: World) -> Iterator[tuple[World, Decision]]:
    """Until nothing changes any more."""
    world = evolve(world, soak_s=0.0, gateways=())
    for _ in range(PASSES_OF_A_REPLICA * (len(world.records) + sum(world.wanted.values()) + 1)):
        decision = reconcile(world)
        world = _obeyed(evolve(world, records={**world.records, **{each.id: each for each in decision.records}}))
        yield world, decision
        if not decision.records:
            return


def _obeyed(world: World) -> World:
    shards: dict[str, list[ShardStatus]] = {name: [] for name in world.nodes}
    for record in world.records.values():
        for each in record.attempts:
            launch = each.launch
            for rank, place in enumerate(launch.places) if not each.stopping else ():
                status = ShardStatus(
                    record.id, launch.generation, rank, ShardPhase.READY, gpus=place.gpus, port=place.port
                )
                shards.setdefault(place.node, []).append(status)
    return evolve(world, nodes={name: _saying(node, shards[name]) for name, node in world.nodes.items()})


def _saying(node: ObservedNode, shards: list[ShardStatus]) -> ObservedNode:
    if node.state is not NodeState.ONLINE or node.shards is None:
        return node
    return evolve(node, shards=tuple(shards), settled=True)

"""`make bench`: what planning costs at 100, 300 and 1,000 nodes, each with twice as many replicas.

Nodes have 8 GPUs and stand on a fabric for every 50 of them. Of twenty replicas one is a group of two whole nodes, four
take 4 GPUs, three take 8 and twelve take 1; there are five models of each kind. The times are of one `reconcile`, the
best of several: from nothing, of a settled world, with one replica that has just failed, or that goes to another node,
crowded, with hundreds of replicas for which there is no place, and with drains of eight models' replicas: all of which
begin to move, or none for want of room, also where they might stop first. A figure over its limit is marked, and the
exit code is 1.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from attrs import astuple, evolve, frozen

from llmgw_core.model.catalog import Catalog, Model
from llmgw_core.model.drain import Drain
from llmgw_core.model.launch import RunShard
from llmgw_core.model.shard import ShardFailure, ShardPhase
from llmgw_core.plan.drain import plan_drain
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.world import World
from llmgw_core.testing.made_world import (
    NOW,
    a_catalog,
    a_profile,
    a_world,
    as_reported,
    decided,
    node_facts,
    seen_node,
    with_node,
)

SIZES = (100, 300, 1000)
NODES_OF_A_FABRIC = 50
MODELS = 5
"""Of each shape."""
SHAPES = {
    "pair": (a_profile(2, 8), 1),
    "eight": (a_profile(1, 8), 3),
    "four": (a_profile(1, 4), 4),
    "one": (a_profile(1, 1), 12),
}
"""By name, the profile, and how many of twenty replicas."""
DRAINED = 8
"""Models of which replicas are to move."""
FROM_NOTHING_S = 2.0
ONE_CHANGED_S = 0.050
EIGHT_MODELS_S = 0.100
"""Each of them is asked of every node, whether there is room or not."""
MOST_GROWTH = 2.0
"""Of the cost of one replica, from the smallest fleet to the largest."""
COLUMNS = ("from nothing", "settled", "one failed", "one placed", "crowded", "moved", "blocked", "stuck", "drain plan")


@frozen
class Figures:
    nodes: int
    replicas: int
    nothing_s: float
    settled_s: float
    failed_s: float
    replaced_s: float
    crowded_s: float
    moved_s: float
    blocked_s: float
    stuck_s: float
    """Blocked, and each might stop first if that made room."""
    plan_s: float
    """`ctl drain --plan` of that node."""


def make_world(nodes: int) -> World:
    """Nothing is placed yet."""
    models: dict[str, Model] = {}
    catalog = a_catalog({f"{name}-{part}": shape for name, (shape, _) in SHAPES.items() for part in range(MODELS)})
    for name, (_, share) in SHAPES.items():
        for part in range(MODELS):
            full = f"{name}-{part}"
            models[full] = evolve(catalog.models[full], replicas=nodes * 2 * share // 20 // MODELS)
    fleet = [seen_node(f"gpu-{n:04}", node_facts(8, (f"ib-{n // NODES_OF_A_FABRIC:02}",))) for n in range(nodes)]
    return a_world(Catalog(models, catalog.profiles), fleet)


def settle(world: World) -> World:
    """Every replica that has a place is ready."""
    world = decided(world, reconcile(world))
    for phase in (ShardPhase.PREPARED, ShardPhase.READY):
        world = as_reported(world, phase)
        world = decided(world, reconcile(world))
    return world


def with_failure(world: World) -> World:
    """One shard has just failed, and nothing of it is left."""
    record = next(each for each in world.records.values() if each.assignment and each.model.startswith("four"))
    assert record.assignment is not None  # noqa: S101
    place = record.assignment.launch.places[0]
    shards = world.nodes[place.node].shards or ()
    failure = ShardFailure("crashed", "segmentation fault", "signal 11")
    told = tuple(
        evolve(each, phase=ShardPhase.FAILED, failure=failure) if each.replica == record.id else each for each in shards
    )
    return with_node(world, place.node, shards=told)


def with_place_to_find(world: World) -> World:
    """The shard that failed has been cleared away, and its back-off is over."""
    failed = next(each for each in reconcile(world).records)
    world = decided(world, reconcile(world))
    node = failed.last_failure.node if failed.last_failure else ""
    left = tuple(each for each in world.nodes[node].shards or () if each.replica != failed.id)
    world = with_node(world, node, shards=left)
    world = decided(world, reconcile(world))
    return evolve(world, now=NOW + 11.0)


def with_too_many(world: World) -> World:
    """More of the largest replicas are wanted than there is room for."""
    more = len(world.nodes) // 5 // MODELS
    large = {name: count + more for name, count in world.wanted.items() if name.startswith(("pair", "eight"))}
    world = evolve(world, wanted={**world.wanted, **large})
    return decided(world, reconcile(world))


def with_drains(world: World, stop_first: bool = False) -> World:
    """Of the first nodes on which there are replicas of eight models."""
    models: dict[str, set[str]] = {}
    for record in world.records.values():
        for place in record.assignment.launch.places if record.assignment else ():
            models.setdefault(place.node, set()).add(record.model)
    found: set[str] = set()
    drains = {}
    for name in sorted(world.nodes):
        if len(found) < DRAINED and not models.get(name, set()) <= found:
            found |= models[name]
            drains[name] = Drain(name, "the bench", NOW, stop_first=stop_first, max_parallel=DRAINED)
            world = with_node(world, name, draining=True)
    return evolve(world, drains=drains)


def roomy(world: World) -> World:
    """With some empty nodes more."""
    facts = next(iter(world.nodes.values())).facts
    spare = {name: seen_node(name, facts) for name in (f"spare-{n}" for n in range(4 * DRAINED))}
    return evolve(world, nodes={**world.nodes, **spare})


def full(world: World) -> World:
    """No node has a free GPU that works."""
    held = {
        (p.node, gpu) for r in world.records.values() for a in r.attempts for p in a.launch.places for gpu in p.gpus
    }
    for name, node in world.nodes.items():
        assert node.facts is not None  # noqa: S101
        gpus = tuple(
            gpu if (name, gpu.uuid) in held else evolve(gpu, trouble="fell off the bus") for gpu in node.facts.gpus.gpus
        )
        world = with_node(world, name, facts=evolve(node.facts, gpus=evolve(node.facts.gpus, gpus=gpus)))
    return world


def best_of(times: int, work: Callable[[], object]) -> float:
    took = []
    for _ in range(times):
        gc.collect()
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return min(took)


def measure(nodes: int) -> Figures:
    empty = make_world(nodes)
    first = reconcile(empty)
    placed = len(first.records) - len(first.unplaced)
    assert all(isinstance(each.order, RunShard) for each in first.orders)  # noqa: S101
    settled = settle(empty)
    failed = with_failure(settled)
    replaced = with_place_to_find(failed)
    assert len(reconcile(failed).records) == len(reconcile(replaced).records) == 1  # noqa: S101
    crowded = with_too_many(settled)
    assert reconcile(crowded).unplaced  # noqa: S101
    moved, blocked, stuck = (
        with_drains(roomy(settled)),
        with_drains(full(settled)),
        with_drains(full(settled), stop_first=True),
    )
    assert len(reconcile(moved).records) >= DRAINED  # noqa: S101
    assert len(reconcile(blocked).blocked) >= DRAINED  # noqa: S101
    print(f"{nodes} nodes: {placed} of {len(first.records)} replicas placed", flush=True)
    return Figures(
        nodes,
        len(first.records),
        best_of(3, lambda: reconcile(empty)),
        best_of(7, lambda: reconcile(settled)),
        best_of(7, lambda: reconcile(failed)),
        best_of(7, lambda: reconcile(replaced)),
        best_of(3, lambda: reconcile(crowded)),
        best_of(7, lambda: reconcile(moved)),
        best_of(7, lambda: reconcile(blocked)),
        best_of(7, lambda: reconcile(stuck)),
        best_of(1, lambda: plan_drain(roomy(settled), tuple(moved.drains.values()))),
    )


def show(what: str, value: float, unit: str, limit: float) -> bool:
    over = value > limit
    print(f"{what:<58} {value:9.2f} {unit:<12} (at most {limit:g}{', OVER' if over else ''})", flush=True)
    return over


def main() -> int:
    figures = [measure(nodes) for nodes in SIZES]
    print(f"{'nodes':>6} {'replicas':>9} " + " ".join(f"{what:>12}" for what in COLUMNS))
    for each in figures:
        said = " ".join(f"{1000 * seconds:9.1f} ms" for seconds in astuple(each)[2:])
        print(f"{each.nodes:>6} {each.replicas:>9} {said}")
    small, large = figures[0], figures[-1]
    grown = (large.nothing_s / large.replicas) / (small.nothing_s / small.replicas)
    settled = (large.settled_s / large.replicas) / (small.settled_s / small.replicas)
    over = [
        show(f"planning {large.replicas} replicas from nothing", large.nothing_s, "s", FROM_NOTHING_S),
        show("one replica failed", 1000 * large.failed_s, "ms", 1000 * ONE_CHANGED_S),
        show("one replica placed again", 1000 * large.replaced_s, "ms", 1000 * ONE_CHANGED_S),
        show("replicas of eight models begin to move", 1000 * large.moved_s, "ms", 1000 * EIGHT_MODELS_S),
        show("replicas of eight models have no room to move", 1000 * large.blocked_s, "ms", 1000 * EIGHT_MODELS_S),
        show("cost of a replica from nothing, largest to smallest", grown, "times", MOST_GROWTH),
        show("cost of a replica in a settled pass, largest to smallest", settled, "times", MOST_GROWTH),
    ]
    return int(any(over))


if __name__ == "__main__":
    sys.exit(main())

"""What to tell the nodes of one attempt.

In: an assignment and what is seen of its shards.  Out: orders.  Pure.
Rules: nothing starts before every shard is prepared; where workers go first, the head starts when all of them are
ready; where the head goes first, workers are stopped when it is gone. Only nodes that speak are told anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmgw_core.model.deployment import Assignment
from llmgw_core.model.launch import Order, RunShard, Stage, StopShard
from llmgw_core.plan.sighting import Sighting
from llmgw_core.plan.world import OrderTo


def is_ready(seen: Sequence[Sighting]) -> bool:
    return all(each.is_ready for each in seen)


def serves(assignment: Assignment, seen: Sequence[Sighting]) -> bool:
    """Whether it is to stay and is ready, as far as anybody can tell."""
    was_ready = assignment.ready_at is not None
    return not assignment.stopping and all(each.is_ready or (was_ready and not each.reached) for each in seen)


def may_launch(seen: Sequence[Sighting]) -> bool:
    return all(each.is_prepared for each in seen)


def orders_of(assignment: Assignment, seen: Sequence[Sighting]) -> Iterator[OrderTo]:
    """All that its nodes are to be told now."""
    stops = assignment.stopping and assignment.held_since is None
    tell = _stop if stops else _run if assignment.launched else _prepare
    for sighting, order in tell(assignment, seen):
        if sighting.reached:
            yield OrderTo(sighting.place.node, order)


def _prepare(assignment: Assignment, seen: Sequence[Sighting]) -> Iterator[tuple[Sighting, Order]]:
    for each in seen:
        yield each, RunShard(assignment.launch, each.rank, Stage.PREPARE)


def _run(assignment: Assignment, seen: Sequence[Sighting]) -> Iterator[tuple[Sighting, Order]]:
    head, *workers = seen
    head_runs = not assignment.workers_first or head.is_launched or all(each.is_ready for each in workers)
    for each in workers:
        yield each, RunShard(assignment.launch, each.rank, Stage.RUN)
    yield head, RunShard(assignment.launch, head.rank, Stage.RUN if head_runs else Stage.PREPARE)


def _stop(assignment: Assignment, seen: Sequence[Sighting]) -> Iterator[tuple[Sighting, Order]]:
    launch = assignment.launch
    head = seen[0]
    in_flight_s = 0.0 if assignment.failed else launch.offer.profile.health.in_flight_s
    waits = assignment.head_first and head.reached and not head.gone
    for each in seen[:1] if waits else seen:
        if not each.gone:
            yield each, StopShard(launch.replica, launch.generation, each.rank, in_flight_s)

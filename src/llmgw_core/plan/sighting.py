"""What is seen of the shards that were placed, and what else runs that should not.

In: the nodes as they are seen.  Out: a `Sighting` for each shard of an attempt, and the stale ones.  Pure.
Rules: nothing is concluded from a node that does not speak; absent means gone only in a settled list of a node that is
online; a lost node's shards count as gone; what a node says of an attempt counts where the attempt has a shard on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Launch, Place
from llmgw_core.model.shard import ShardPhase, ShardStatus
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.world import ObservedNode

MOST_AHEAD = 1_000_000
"""So far a node may be ahead of the store, which came from a backup; more is a damaged file, or a lie that would use
up the numbers."""
_AT_REST = (ShardPhase.PREPARING, ShardPhase.PREPARED)


@frozen
class Sighting:
    """One shard of an attempt, as it is seen now."""

    rank: int
    place: Place
    node: ObservedNode | None
    """`None` for a node that was removed."""
    status: ShardStatus | None
    lost: bool
    """Whether its node is, so that nothing more will be heard of it."""

    @property
    def reached(self) -> bool:
        """Whether its node takes orders."""
        return self.node is not None and self.node.shards is not None

    @property
    def missing(self) -> bool:
        """Whether its node says that nothing of it is there."""
        return (
            self.status is None
            and self.node is not None
            and self.node.state is NodeState.ONLINE
            and self.node.settled
            and self.node.shards is not None
        )

    @property
    def gone(self) -> bool:
        return self.lost or self.missing

    @property
    def phase(self) -> ShardPhase | None:
        return self.status.phase if self.status is not None else None

    @property
    def is_ready(self) -> bool:
        return self.status is not None and self.status.phase is ShardPhase.READY

    @property
    def is_prepared(self) -> bool:
        """Prepared, or beyond."""
        return self.status is not None and self.status.phase is not ShardPhase.PREPARING

    @property
    def is_launched(self) -> bool:
        """Beyond prepared."""
        return self.status is not None and self.status.phase not in _AT_REST


def look_at(launch: Launch, nodes: Mapping[str, ObservedNode], lost: frozenset[str]) -> tuple[Sighting, ...]:
    """The shards of an attempt, by rank."""
    return tuple(
        Sighting(
            rank,
            place,
            node := nodes.get(place.node),
            _status(node, launch, rank),
            node is None or place.node in lost,
        )
        for rank, place in enumerate(launch.places)
    )


def _status(node: ObservedNode | None, launch: Launch, rank: int) -> ShardStatus | None:
    if node is None or node.shards is None:
        return None
    for status in node.shards:
        if status.rank == rank and status.generation == launch.generation and status.replica == launch.replica:
            return status
    return None


@frozen
class Stale:
    """A shard that runs where no attempt of today has it."""

    node: str
    status: ShardStatus


def find_stale(nodes: Mapping[str, ObservedNode], records: Mapping[str, ReplicaRecord]) -> Iterator[Stale]:
    """What a node reports beside the current attempts, the nodes in order of their names."""
    for name in sorted(nodes):
        for status in nodes[name].shards or ():
            if not _is_current(records.get(status.replica), name, status):
                yield Stale(name, status)


def _is_current(record: ReplicaRecord | None, node: str, status: ShardStatus) -> bool:
    if record is None:
        return False
    launches = (each.launch for each in record.attempts)
    return any(
        launch.generation == status.generation
        and 0 <= status.rank < len(launch.places)
        and launch.places[status.rank].node == node
        for launch in launches
    )


def reported_generations(
    nodes: Mapping[str, ObservedNode], records: Mapping[str, ReplicaRecord]
) -> dict[str, dict[str, int]]:
    """By replica and node, the highest generation that it reports; not one that no history explains."""
    found: dict[str, dict[str, int]] = {}
    for node in nodes.values():
        for status in node.shards or ():
            record = records.get(status.replica)
            if status.generation - (record.generation if record is not None else 0) <= MOST_AHEAD:
                by_node = found.setdefault(status.replica, {})
                by_node[node.name] = max(status.generation, by_node.get(node.name, 0))
    return found

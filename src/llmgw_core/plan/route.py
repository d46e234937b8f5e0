"""Where a model's requests may go, and why its other replicas take none.

In: the catalog, the records as a pass leaves them, what is seen of their shards.  Out: a `ModelRoute` for each model.
Pure.
Rules: a replica takes requests from the moment it is ready until it is told to leave, in a move the original and its
replacement both; of a node that does not speak, what was known before stands, since traffic goes on without us; what is
said of a replica that takes none changes only when something about it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from llmgw_core.model.catalog import Catalog, Model
from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.route import Absent, ModelRoute, Target
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.attempt import serves
from llmgw_core.plan.replica_state import ReplicaState
from llmgw_core.plan.restart import has_failed
from llmgw_core.plan.sighting import Sighting
from llmgw_core.plan.world import Attempt

UNPLACED = "unplaced"
REASON_CHARACTERS = 120
Look = Callable[[Assignment | None], Sequence[Sighting]]

_WORDS = {
    ShardPhase.PREPARING: "being checked",
    ShardPhase.PREPARED: "waiting to be started",
    ShardPhase.STARTING: "loading",
    ShardPhase.READY: "waiting for its other shards",
    ShardPhase.UNREADY: "not answering",
    ShardPhase.STOPPING: "ending",
    ShardPhase.FAILED: "ending",
}
_PHASES = list(_WORDS)


def plan_routes(
    catalog: Catalog,
    records: Iterable[ReplicaRecord],
    wanted: Collection[str],
    shortages: Mapping[str, str],
    look: Look,
) -> tuple[ModelRoute, ...]:
    """By name. `wanted`: ids of replicas; `shortages`: by replica that has no place, why, in a few words."""
    targets: dict[str, list[Target]] = {}
    absent: dict[str, list[Absent]] = {}
    for record in records:
        found = list(_targets(record, look))
        if found:
            targets.setdefault(record.model, []).extend(found)
        elif record.id in wanted:
            absence = _absence(record, look(record.serving), shortages.get(record.id, ""))
            absent.setdefault(record.model, []).append(absence)
    return tuple(
        _route(name, model, catalog, targets.get(name, ()), absent.get(name, ()))
        for name, model in sorted(catalog.models.items())
    )


def attempts_of(routes: Iterable[ModelRoute]) -> frozenset[Attempt]:
    """To which they lead."""
    return frozenset((target.replica, target.generation) for route in routes for target in route.targets)


def _route(
    name: str, model: Model, catalog: Catalog, targets: Sequence[Target], absent: Sequence[Absent]
) -> ModelRoute:
    lengths = [catalog.profiles[profile].context_length for profile in model.profiles]
    stated = [length for length in lengths if length is not None]
    return ModelRoute(
        name,
        aliases=model.aliases,
        affinity=model.affinity,
        context_length=min(stated, default=None),
        targets=tuple(targets),
        absent=tuple(absent),
    )


def _targets(record: ReplicaRecord, look: Look) -> Iterator[Target]:
    for each in record.attempts:
        if not each.stopping and serves(each, look(each)):
            head = each.launch.places[0]
            yield Target(record.id, each.launch.generation, head.address, head.port, each.launch.key)


def _absence(record: ReplicaRecord, seen: Sequence[Sighting], shortage: str) -> Absent:
    serving = record.serving
    if serving is None:
        return _without_place(record, shortage)
    if serving.failed and record.last_failure is not None:
        return Absent(record.id, ReplicaState.FAILED.value, record.last_failure.kind)
    if serving.stopping:
        return Absent(record.id, ReplicaState.STOPPING.value, serving.stopping[:REASON_CHARACTERS])
    if serving.ready_at is None:
        return Absent(record.id, ReplicaState.STARTING.value, _waits_for(seen), serving.placed_at)
    return Absent(record.id, ReplicaState.UNREADY.value, _waits_for(seen))


def _without_place(record: ReplicaRecord, shortage: str) -> Absent:
    if shortage:
        return Absent(record.id, UNPLACED, shortage)
    if has_failed(record) and record.last_failure is not None:
        return Absent(record.id, ReplicaState.FAILED.value, record.last_failure.kind)
    return Absent(record.id, ReplicaState.PENDING.value)


def _waits_for(seen: Sequence[Sighting]) -> str:
    """Who is furthest back is waited for."""
    waiting = [each for each in seen if not each.is_ready]
    if not waiting:
        return ""
    furthest = min(waiting, key=lambda each: -1 if each.phase is None else _PHASES.index(each.phase))
    if furthest.phase is not None:
        return _WORDS[furthest.phase]
    return "not begun" if furthest.reached else "its node does not speak"

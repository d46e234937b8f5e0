"""Which replicas there are to be.

In: how many of each model are wanted, and the records.  Out: the ids that are wanted, and new records.  Pure.
Rules: ids are `model/ordinal`, and a new one takes the smallest from 1 that is free; of too many, those that are not
ready go first, then those that must move, then the highest ordinals. A record is never thrown away, since its
generation must never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import evolve, frozen

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.plan.restart import clean


@frozen
class Roster:
    wanted: tuple[str, ...]
    """Ids, by model and ordinal."""
    changed: tuple[ReplicaRecord, ...] = ()
    """New records, and those that are wanted again."""


def ordinal_of(replica: str) -> int:
    return int(replica.rpartition("/")[2])


def replica_id(model: str, ordinal: int) -> str:
    return f"{model}/{ordinal}"


def plan_roster(
    catalog: Catalog,
    wanted: Mapping[str, int],
    records: Mapping[str, ReplicaRecord],
    rank_of: Callable[[ReplicaRecord], int],
) -> Roster:
    """`rank_of` a record: 0 for one that is ready, more the less is lost with it."""
    by_model: dict[str, list[ReplicaRecord]] = {}
    for record in records.values():
        if not record.retired:
            by_model.setdefault(record.model, []).append(record)
    ids: list[str] = []
    changed: list[ReplicaRecord] = []
    for name in sorted(catalog.models):
        count = wanted.get(name, catalog.models[name].replicas)
        there = by_model.get(name, [])
        if len(there) > count:
            kept = sorted(there, key=lambda each: (rank_of(each), ordinal_of(each.id)))[:count]
        else:
            kept = there + list(_added(name, count - len(there), {each.id for each in there}, records))
            changed += kept[len(there) :]
        ids += sorted((each.id for each in kept), key=ordinal_of)
    return Roster(tuple(ids), tuple(changed))


def _added(
    model: str, count: int, there: Iterable[str], records: Mapping[str, ReplicaRecord]
) -> Iterator[ReplicaRecord]:
    taken = set(there)
    ordinal = 1
    while count > 0:
        name = replica_id(model, ordinal)
        ordinal += 1
        if name in taken:
            continue
        count -= 1
        old = records.get(name)
        yield ReplicaRecord(name, model) if old is None else evolve(clean(old), retired=False)

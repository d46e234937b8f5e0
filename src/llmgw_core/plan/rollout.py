"""Which replicas are outdated, because how they are to run was changed, and which of them cost nobody anything.

In: a model's wanted replicas, its offers, which are ready.  Out: those to stop now.  Pure.
Rules: what never was ready costs nobody anything and goes at once; what serves moves (see `moving`). Where nothing is
offered, nothing better is to come, and all stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import evolve

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Offer

CHANGED = "how it is to run was changed"


def is_outdated(assignment: Assignment, offers: Sequence[Offer]) -> bool:
    """Whether its offer is made no more, or made differently."""
    key = assignment.launch.offer.key
    return all(offer.key != key for offer in offers)


def find_served(
    records: Iterable[ReplicaRecord],
    today: Mapping[tuple[str, str], Offer],
    then: Mapping[tuple[str, str], Offer],
) -> dict[str, tuple[Offer, ...]]:
    """By model, the offers of today that serve and that `then` changes: what a roll-back goes back to.

    Offers are by model and profile name. One that never was ready is no way back, nor is one of a model that goes.
    """
    placed = [record.assignment for record in records if record.assignment is not None]
    ready = {each.launch.offer.key for each in placed if each.ready_at is not None}
    found = {}
    for model in {name for name, _ in today} & {name for name, _ in then}:
        old = tuple(offer for (name, _), offer in today.items() if name == model)
        new = {offer.key for (name, _), offer in then.items() if name == model}
        if {offer.key for offer in old} != new and any(offer.key in ready for offer in old):
            found[model] = old
    return found


def renew_offers(record: ReplicaRecord, today: Mapping[str, Offer]) -> ReplicaRecord:
    """With the offers of `today`, by key, in its attempts; what a key leaves out needs no new start."""
    assignment, move = record.assignment, record.move
    if assignment is not None:
        assignment = _renewed(assignment, today)
    if move is not None and move.replacement is not None:
        replacement = _renewed(move.replacement, today)
        move = move if replacement is move.replacement else evolve(move, replacement=replacement)
    if assignment is record.assignment and move is record.move:
        return record
    return evolve(record, assignment=assignment, move=move)


def _renewed(assignment: Assignment, today: Mapping[str, Offer]) -> Assignment:
    offer = today.get(assignment.launch.offer.key)
    if offer is None or offer is assignment.launch.offer or offer == assignment.launch.offer:
        return assignment
    return evolve(assignment, launch=evolve(assignment.launch, offer=offer))


def never_served(
    records: Sequence[ReplicaRecord], offers: Sequence[Offer], is_ready: Callable[[ReplicaRecord], bool]
) -> list[ReplicaRecord]:
    """Those of one model that are to be stopped now, to be placed anew when they are gone."""
    if not offers:
        return []
    return [
        each
        for each in records
        if each.assignment is not None
        and not each.assignment.stopping
        and each.assignment.ready_at is None
        and is_outdated(each.assignment, offers)
        and not is_ready(each)
    ]

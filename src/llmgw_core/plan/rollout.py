"""Which replicas are outdated, because how they are to run was changed, and which of them cost nobody anything.

In: a model's wanted replicas, its offers, which are ready.  Out: those to stop now.  Pure.
Rules: what never was ready costs nobody anything and goes at once; what serves moves (see `moving`). Where nothing is
offered, nothing better is to come, and all stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Offer

CHANGED = "how it is to run was changed"


def is_outdated(assignment: Assignment, offers: Sequence[Offer]) -> bool:
    """Whether its offer is made no more, or made differently."""
    key = assignment.launch.offer.key
    return all(offer.key != key for offer in offers)


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

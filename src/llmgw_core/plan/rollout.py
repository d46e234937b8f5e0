"""Which replicas are outdated, because how they are to run was changed, and which of them cost nobody anything.

In: a model's wanted replicas, its offers, which are ready.  Out: those to stop now.  Pure.
Rules: what never was ready costs nobody anything and goes at once; what serves moves (see `moving`). Where nothing is
offered, nothing better is to come, and all stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Offer

CHANGED = "how it is to run was changed"


def is_outdated(assignment: Assignment, offers: Sequence[Offer]) -> bool:
    """Whether its offer is made no more, or made differently."""
    key = assignment.launch.offer.key
    return all(offer.key != key for offer in offers)


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

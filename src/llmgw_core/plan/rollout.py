"""Which replicas are started anew because how they are to run was changed.

In: a model's wanted replicas, its offers, which are ready.  Out: those to stop now.  Pure.
Rules: what never was ready costs nobody anything and goes at once; of those that serve one goes at a time, and only
while every other one is ready. Where nothing is offered, nothing better is to come, and all stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Offer


def is_outdated(assignment: Assignment, offers: Sequence[Offer]) -> bool:
    """Whether its offer is made no more, or made differently."""
    key = assignment.launch.offer.key
    return all(offer.key != key for offer in offers)


def plan_rollout(
    records: Sequence[ReplicaRecord], offers: Sequence[Offer], is_ready: Callable[[ReplicaRecord], bool]
) -> list[ReplicaRecord]:
    """Those of one model that are to be stopped now, to be placed anew when they are gone."""
    outdated = [
        each
        for each in records
        if each.assignment is not None and not each.assignment.stopping and is_outdated(each.assignment, offers)
    ]
    if not outdated or not offers:
        return []
    idle = [each for each in outdated if each.assignment and each.assignment.ready_at is None and not is_ready(each)]
    if idle:
        return idle
    one = outdated[0]
    return [one] if all(is_ready(each) for each in records if each is not one) else []

"""Which places on the board belong to whom.

In: the places so far, a new table, and whose requests still linger.  Out: the places from now on.  Pure.
Rules: who has a place keeps it; an attempt's place is free once nothing routes there and nothing lingers; the places of
keys, replicas and models that are gone are given away only when no other is left; who finds none has place 0, which is
nobody's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from attrs import field, frozen

from llmgw_core.gateway.board import ATTEMPTS, KEYS, MODELS, REPLICAS
from llmgw_core.model.route import RouteTable, Target


@frozen
class Places:
    """By name; of attempts by `attempt_name`."""

    attempts: Mapping[str, int] = field(factory=dict)
    keys: Mapping[str, int] = field(factory=dict)
    replicas: Mapping[str, int] = field(factory=dict)
    models: Mapping[str, int] = field(factory=dict)


def attempt_name(target: Target) -> str:
    return f"{target.replica}@{target.generation}"


def assign_places(places: Places, table: RouteTable, lingering: Collection[str]) -> Places:
    """`lingering`: names of attempts that still have requests."""
    targets = [target for model in table.models for target in model.targets]
    attempts = dict.fromkeys(map(attempt_name, targets))
    kept = {name: place for name, place in places.attempts.items() if name in attempts or name in lingering}
    replicas = [*(each.replica for each in targets), *(each.replica for model in table.models for each in model.absent)]
    return Places(
        attempts=_fill(kept, attempts, ATTEMPTS),
        keys=_fill(places.keys, [key.id for key in table.keys], KEYS),
        replicas=_fill(places.replicas, replicas, REPLICAS),
        models=_fill(places.models, [model.name for model in table.models], MODELS),
    )


def _fill(places: Mapping[str, int], wanted: Iterable[str], most: int) -> dict[str, int]:
    given = dict(places)
    wanted = dict.fromkeys(wanted)
    taken = set(given.values())
    free = (place for place in range(1, most) if place not in taken)
    gone = (name for name in places if name not in wanted)
    for name in wanted:
        if name in given:
            continue
        place = next(free, 0)
        if not place:
            leaves = next(gone, None)
            place = given.pop(leaves) if leaves is not None else 0
        if place:
            given[name] = place
    return given

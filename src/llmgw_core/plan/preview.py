"""What another catalog would change, before anybody applies it.

In: the world as it is, and as it would be.  Out: what would change, a value for each thing.  Pure.
Rules: what would go is taken for gone, and what would start anew is placed again, so that the places are those of the
end and not of the way there. A node that has not answered an offer yet is taken to accept it, and the line says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import evolve, frozen

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, OfferChecked
from llmgw_core.plan.attempt import is_ready
from llmgw_core.plan.explain import placer_of
from llmgw_core.plan.offer import offers_by_model
from llmgw_core.plan.placement import placing_order
from llmgw_core.plan.rollout import is_outdated
from llmgw_core.plan.roster import ordinal_of, plan_roster
from llmgw_core.plan.sighting import look_at
from llmgw_core.plan.world import ObservedNode, World


class ChangeKind(Enum):
    MODEL_ADDED = "new model"
    MODEL_REMOVED = "model removed"
    SCALED = "scaled"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    NO_ROOM = "no room"


@frozen
class PlannedChange:
    kind: ChangeKind
    subject: str
    """A model or a replica."""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.subject}" + (f": {self.detail}" if self.detail else "")


def what_changes(before: World, after: World) -> tuple[PlannedChange, ...]:
    """`after`: the world with the other catalog, its numbers and offers, and everything else as it is."""
    if after.catalog is None:
        return ()
    models = _models(before.catalog or Catalog(), before.wanted, after.catalog, after.wanted)
    roster = plan_roster(after.catalog, after.wanted, after.records, lambda record: _rank(record, after))
    offers = offers_by_model(after.catalog, after.offers)
    records = {**after.records, **{each.id: each for each in roster.changed}}
    going = [each for each in records.values() if each.assignment is not None and each.id not in roster.wanted]
    outdated = [name for name in roster.wanted if _is_outdated(records[name], offers)]
    new = [name for name in roster.wanted if records[name].assignment is None]
    stops = [PlannedChange(ChangeKind.STOP, each.id) for each in sorted(going, key=_in_order)]
    world = _without(evolve(after, records=records), {each.id for each in going} | set(outdated))
    return (*models, *stops, *_starts(world, after, [*outdated, *new], frozenset(outdated)))


def _models(old: Catalog, had: Mapping[str, int], new: Catalog, wanted: Mapping[str, int]) -> Iterable[PlannedChange]:
    for name in sorted({*old.models, *new.models}):
        count = wanted.get(name, new.models[name].replicas) if name in new.models else 0
        if name not in old.models:
            yield PlannedChange(ChangeKind.MODEL_ADDED, name, _replicas(count))
        elif name not in new.models:
            yield PlannedChange(ChangeKind.MODEL_REMOVED, name)
        elif had.get(name, old.models[name].replicas) != count:
            before = had.get(name, old.models[name].replicas)
            yield PlannedChange(ChangeKind.SCALED, name, f"from {before} to {_replicas(count)}")


def _replicas(count: int) -> str:
    return f"{count} replica{'s' if count != 1 else ''}"


def _rank(record: ReplicaRecord, world: World) -> int:
    if record.assignment is None or record.assignment.stopping:
        return 2
    return 0 if is_ready(look_at(record.assignment.launch, world.nodes, frozenset())) else 1


def _is_outdated(record: ReplicaRecord, offers: Mapping[str, Sequence[Offer]]) -> bool:
    return record.assignment is not None and is_outdated(record.assignment, offers[record.model])


def _in_order(record: ReplicaRecord) -> tuple[str, int]:
    return record.model, ordinal_of(record.id)


def _without(world: World, going: set[str]) -> World:
    """As if these were gone, and as if every offer that was not answered yet were accepted."""
    offers = tuple(world.offers.values())
    nodes = {name: _agreeing(_cleared(node, going), offers) for name, node in world.nodes.items()}
    records = {
        name: evolve(record, assignment=None) if name in going else record for name, record in world.records.items()
    }
    return evolve(world, nodes=nodes, records=records)


def _cleared(node: ObservedNode, going: set[str]) -> ObservedNode:
    if node.shards is None or not any(status.replica in going for status in node.shards):
        return node
    return evolve(node, shards=tuple(status for status in node.shards if status.replica not in going))


def _agreeing(node: ObservedNode, offers: Iterable[Offer]) -> ObservedNode:
    if node.facts is None:
        return node
    answered = {each.key for each in node.facts.offers}
    more = tuple(OfferChecked(offer.key) for offer in offers if offer.key not in answered)
    return evolve(node, facts=evolve(node.facts, offers=node.facts.offers + more)) if more else node


def _starts(world: World, asked: World, names: Sequence[str], outdated: frozenset[str]) -> Iterable[PlannedChange]:
    placer = placer_of(world)
    waiting = [world.records[name] for name in names]
    for record in sorted(waiting, key=lambda each: placing_order(each, placer.offers[each.model])):
        placed = placer.place(record, record.generation + 1)
        if placed is None:
            why = placer.why_not(record)
            yield PlannedChange(ChangeKind.NO_ROOM, record.id, f"{why}{_lost_by_change(record, outdated)}")
        elif record.id in outdated:
            yield PlannedChange(ChangeKind.RESTART, record.id, _where(placed.launch, asked))
        else:
            yield PlannedChange(ChangeKind.START, record.id, _where(placed.launch, asked))


def _lost_by_change(record: ReplicaRecord, outdated: frozenset[str]) -> str:
    return "; it runs now, and would be stopped" if record.id in outdated else ""


def _where(launch: Launch, asked: World) -> str:
    """`on gpu-01 and gpu-02 with profile fp8`."""
    nodes = [place.node for place in launch.places]
    silent = [name for name in nodes if not _has_answered(asked.nodes[name], launch.offer)]
    if not silent:
        condition = ""
    elif len(nodes) == 1:
        condition = ", if the node accepts it"
    else:
        condition = ", if the nodes accept it"
    return f"on {' and '.join(nodes)} with profile {launch.offer.profile_name}{condition}"


def _has_answered(node: ObservedNode, offer: Offer) -> bool:
    return node.facts is not None and any(each.key == offer.key for each in node.facts.offers)

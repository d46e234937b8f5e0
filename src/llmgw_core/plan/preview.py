"""What another catalog would change, before anybody applies it.

In: the world as it is, and as it would be.  Out: what would change, a value for each thing.  Pure.
Rules: what would go is taken for gone, so that the places are those of the end and not of the way there; what never
served starts anew; what serves moves, each beside all others that still run, and stays as it is where there is no room.
A node that has not answered an offer yet is taken to accept it, and the line says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import evolve, frozen

from llmgw_core.model.catalog import Catalog, Model
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, OfferChecked
from llmgw_core.plan.attempt import serves
from llmgw_core.plan.explain import placer_of
from llmgw_core.plan.moving import find_cause_to_move
from llmgw_core.plan.offer import offers_by_model
from llmgw_core.plan.placement import Placer, placing_order
from llmgw_core.plan.rollout import is_outdated
from llmgw_core.plan.roster import ordinal_of, plan_roster
from llmgw_core.plan.sighting import look_at
from llmgw_core.plan.world import ObservedNode, World


class ChangeKind(Enum):
    MODEL_ADDED = "new model"
    MODEL_REMOVED = "model removed"
    SCALED = "scaled"
    ROUTED = "routed"
    """By which names, and how, requests find it: nothing starts anew."""
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    """It never served, and costs nobody anything."""
    MOVE = "move"
    """Its replacement comes up first."""
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
    offers = offers_by_model(after.catalog, after.offers)
    roster = plan_roster(after.catalog, after.wanted, after.records, lambda record: _rank(record, after, offers))
    records = {**after.records, **{each.id: each for each in roster.changed}}
    going = [each for each in records.values() if each.attempts and each.id not in roster.wanted]
    outdated = [records[name] for name in roster.wanted if _is_outdated(records[name], offers)]
    moving = [each for each in outdated if each.assignment is not None and each.assignment.ready_at is not None]
    restarts = [each for each in outdated if each not in moving]
    new = [records[name] for name in roster.wanted if not records[name].attempts]
    stops = [PlannedChange(ChangeKind.STOP, each.id) for each in sorted(going, key=_in_order)]
    world = _without(evolve(after, records=records), {each.id for each in (*going, *restarts)})
    forecast = _Forecast(placer_of(world), after)
    starts = forecast.starts(new, ChangeKind.START)
    return (*models, *stops, *forecast.starts(restarts, ChangeKind.RESTART), *starts, *forecast.moves(moving))


def _models(old: Catalog, had: Mapping[str, int], new: Catalog, wanted: Mapping[str, int]) -> Iterable[PlannedChange]:
    for name in sorted({*old.models, *new.models}):
        if name not in new.models:
            yield PlannedChange(ChangeKind.MODEL_REMOVED, name)
            continue
        count = wanted.get(name, new.models[name].replicas)
        if name not in old.models:
            yield PlannedChange(ChangeKind.MODEL_ADDED, name, _replicas(count))
            continue
        before, routing = had.get(name, old.models[name].replicas), _routing(new.models[name])
        if before != count:
            yield PlannedChange(ChangeKind.SCALED, name, f"from {before} to {_replicas(count)}")
        if routing != _routing(old.models[name]):
            yield PlannedChange(ChangeKind.ROUTED, name, routing)


def _routing(model: Model) -> str:
    return f"aliases: {', '.join(model.aliases) or 'none'}; affinity: {model.affinity.value}"


def _replicas(count: int) -> str:
    return f"{count} replica{'s' if count != 1 else ''}"


def _rank(record: ReplicaRecord, world: World, offers: Mapping[str, Sequence[Offer]]) -> int:
    """How little is lost with it."""
    if all(each.stopping for each in record.attempts):
        return 4 if record.attempts else 3
    if not any(serves(each, look_at(each.launch, world.nodes, frozenset())) for each in record.attempts):
        return 2
    return 1 if find_cause_to_move(record, world, offers.get(record.model, ())) is not None else 0


def _is_outdated(record: ReplicaRecord, offers: Mapping[str, Sequence[Offer]]) -> bool:
    """Where nothing is offered, nothing better is to come."""
    those = offers[record.model]
    return bool(those and record.attempts) and all(is_outdated(each, those) for each in record.attempts)


def _in_order(record: ReplicaRecord) -> tuple[str, int]:
    return record.model, ordinal_of(record.id)


def _without(world: World, going: set[str]) -> World:
    """As if these were gone, and as if every offer that was not answered yet were accepted."""
    offers = tuple(world.offers.values())
    nodes = {name: _agreeing(_cleared(node, going), offers) for name, node in world.nodes.items()}
    records = {
        name: evolve(record, assignment=None, move=None) if name in going else record
        for name, record in world.records.items()
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


@frozen
class _Forecast:
    """Who goes where; what is taken stays taken."""

    placer: Placer
    asked: World
    """In which not all nodes have answered."""

    def starts(self, records: Iterable[ReplicaRecord], kind: ChangeKind) -> list[PlannedChange]:
        found = []
        for record in self._in_order(records):
            placed = self.placer.place(record, record.generation + 1)
            if placed is None:
                found.append(PlannedChange(ChangeKind.NO_ROOM, record.id, self.placer.why_not(record)))
            else:
                found.append(PlannedChange(kind, record.id, f"on {_where(placed.launch, self.asked)}"))
        return found

    def moves(self, records: Iterable[ReplicaRecord]) -> list[PlannedChange]:
        """What one leaves may take the next, and those that had no room before."""
        waiting, found = self._in_order(records), list[PlannedChange]()
        while waiting:
            moved = [change for record in waiting if (change := self._move(record)) is not None]
            found += moved
            gone = {change.subject for change in moved}
            waiting = [record for record in waiting if record.id not in gone]
            if not moved:
                break
        return found + [PlannedChange(ChangeKind.NO_ROOM, each.id, self._why_it_stays(each)) for each in waiting]

    def _move(self, record: ReplicaRecord) -> PlannedChange | None:
        placed = self.placer.place(record, record.generation + 1)
        if placed is None:
            return None
        for each in record.attempts:
            self.placer.give_back(each.launch)
        return PlannedChange(ChangeKind.MOVE, record.id, f"to {_where(placed.launch, self.asked)}")

    def _why_it_stays(self, record: ReplicaRecord) -> str:
        what = "room" if self.placer.lacks_room_only(record) else "place"
        return f"no {what} for its replacement: it stays as it is; {self.placer.why_not(record)}"

    def _in_order(self, records: Iterable[ReplicaRecord]) -> list[ReplicaRecord]:
        return sorted(records, key=lambda each: placing_order(each, self.placer.offers[each.model]))


def _where(launch: Launch, asked: World) -> str:
    """`gpu-01 and gpu-02 with profile fp8`."""
    nodes = [place.node for place in launch.places]
    silent = [name for name in nodes if not _has_answered(asked.nodes[name], launch.offer)]
    if not silent:
        condition = ""
    elif len(nodes) == 1:
        condition = ", if the node accepts it"
    else:
        condition = ", if the nodes accept it"
    return f"{' and '.join(nodes)} with profile {launch.offer.profile_name}{condition}"


def _has_answered(node: ObservedNode, offer: Offer) -> bool:
    return node.facts is not None and any(each.key == offer.key for each in node.facts.offers)

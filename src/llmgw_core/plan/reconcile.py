"""What to do next, from what is wanted, what was decided and what is seen.

In: a `World`.  Out: a `Decision`: records that changed, orders, what is worth an event.  Pure.
Rules: level-triggered: the whole is decided anew each time, equal worlds give equal decisions, and a world in which
nothing is to do gives the same orders again and no changed record. Records come first: an order follows from a record
that is stored. An attempt stands and falls as a unit; nothing is placed again before nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from attrs import define, evolve, field

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, StopShard
from llmgw_core.plan.attempt import is_ready, orders_of
from llmgw_core.plan.loss import Losses, find_losses
from llmgw_core.plan.offer import offers_by_model
from llmgw_core.plan.placement import Placed, Placer, placing_order
from llmgw_core.plan.progress import Terms, advance
from llmgw_core.plan.restart import after_change, is_stained, stable_at
from llmgw_core.plan.rollout import plan_rollout
from llmgw_core.plan.room import survey
from llmgw_core.plan.roster import ordinal_of, plan_roster
from llmgw_core.plan.sighting import Sighting, Stale, find_stale, highest_generations, look_at
from llmgw_core.plan.world import Decision, Happening, OrderTo, World


def reconcile(world: World) -> Decision:
    """Everything that is to be done now."""
    if world.catalog is None:
        return Decision()
    offers = offers_by_model(world.catalog, world.offers)
    losses = find_losses(world.nodes, world.lost_after_s, world.now, world.spared)
    stale = tuple(find_stale(world.nodes, world.records))
    planning = _Planning(world, world.catalog, offers, losses, stale, highest_generations(world.nodes))
    return planning.decide()


@define
class _Planning:
    """One pass: the records as they become, step by step."""

    world: World
    catalog: Catalog
    offers: Mapping[str, Sequence[Offer]]
    losses: Losses
    stale: Sequence[Stale]
    highest: Mapping[str, int]
    records: dict[str, ReplicaRecord] = field(init=False)
    happenings: list[Happening] = field(factory=list)
    unplaced: dict[str, str] = field(factory=dict)
    _seen: dict[str, tuple[Launch, tuple[Sighting, ...]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.records = dict(self.world.records)

    def decide(self) -> Decision:
        wanted = self._call_the_roll()
        self._roll_out(wanted)
        self._advance(frozenset(wanted))
        self._place(wanted)
        records = self._in_order()
        changed = [each for each in records if self._is_changed(each)]
        return Decision(
            records=tuple(changed),
            orders=tuple(self._orders(records)),
            happenings=tuple(self.happenings),
            unplaced=self.unplaced,
            guarded=self.losses.reasons,
            spared=self.losses.spared,
            look_again_at=min(self._times(wanted), default=None),
        )

    def _in_order(self) -> list[ReplicaRecord]:
        return sorted(self.records.values(), key=lambda each: (each.model, ordinal_of(each.id)))

    def _is_changed(self, record: ReplicaRecord) -> bool:
        before = self.world.records.get(record.id)
        return before is not record and before != record

    def _call_the_roll(self) -> tuple[str, ...]:
        roster = plan_roster(self.catalog, self.world.wanted, self.records, self._rank)
        self.records.update({each.id: each for each in roster.changed})
        return roster.wanted

    def _rank(self, record: ReplicaRecord) -> int:
        """How little is lost with it."""
        if record.assignment is None or record.assignment.stopping:
            return 2
        return 0 if self._serves(record) else 1

    def _serves(self, record: ReplicaRecord) -> bool:
        """Whether it is ready, as far as anybody can tell."""
        if record.assignment is None or record.assignment.stopping:
            return False
        was_ready = record.assignment.ready_at is not None
        return all(each.is_ready or (was_ready and not each.reached) for each in self._look(record))

    def _look(self, record: ReplicaRecord) -> tuple[Sighting, ...]:
        if record.assignment is None:
            return ()
        launch = record.assignment.launch
        known = self._seen.get(record.id)
        if known is None or known[0] is not launch:
            known = self._seen[record.id] = launch, look_at(launch, self.world.nodes, self.losses.lost)
        return known[1]

    def _roll_out(self, wanted: Iterable[str]) -> None:
        by_model: dict[str, list[ReplicaRecord]] = {}
        for name in wanted:
            record = self.records[name]
            by_model.setdefault(record.model, []).append(record)
        for model, records in by_model.items():
            for record in plan_rollout(records, self.offers[model], self._is_ready):
                why = "how it is to run was changed"
                self._stop(record, why)

    def _is_ready(self, record: ReplicaRecord) -> bool:
        assignment = record.assignment
        return assignment is not None and not assignment.stopping and is_ready(self._look(record))

    def _stop(self, record: ReplicaRecord, why: str) -> None:
        assert record.assignment is not None  # noqa: S101 - only what was placed is outdated
        self.records[record.id] = evolve(record, assignment=evolve(record.assignment, stopping=why))
        self.happenings.append(Happening("replica stopping", "", f"{record.id}: {why}"))

    def _advance(self, wanted: frozenset[str]) -> None:
        for record in self._in_order():
            if record.retired:
                continue
            step = advance(record, self._look(record), self._terms(record, wanted))
            self.records[record.id] = step.record
            self.happenings += step.happenings

    def _terms(self, record: ReplicaRecord, wanted: frozenset[str]) -> Terms:
        unwanted = "" if record.id in wanted else self._why_unwanted(record.model)
        newest = self.highest.get(record.id, 0)
        return Terms(
            now=self.world.now,
            deadline_s=self._deadline_s(record.assignment) if record.assignment is not None else 0.0,
            unwanted=unwanted,
            superseded=newest if newest > record.generation else 0,
        )

    def _why_unwanted(self, model: str) -> str:
        if model not in self.catalog.models:
            return f"the catalog has no model {model} any more"
        return f"{self.world.wanted.get(model, self.catalog.models[model].replicas)} replicas of {model} are enough"

    def _deadline_s(self, assignment: Assignment) -> float:
        """As the catalog says now: how patient one is with an engine needs no new start."""
        offer = assignment.launch.offer
        today = self.world.offers.get((offer.model, offer.profile_name), offer)
        return (today if today.key == offer.key else offer).profile.health.start_deadline_s

    def _place(self, wanted: Iterable[str]) -> None:
        waiting = [record for name in wanted if (record := self._refresh(self.records[name])).assignment is None]
        due = [record for record in waiting if record.not_before <= self.world.now]
        if not due:
            return
        launches = [each.assignment.launch for each in self.records.values() if each.assignment is not None]
        placer = Placer(survey(self.world.nodes, launches, self.stale), self.offers, self.world.refuted)
        left = []
        for record in sorted(due, key=lambda each: placing_order(each, self.offers[each.model])):
            generation = max(record.generation, self.highest.get(record.id, 0)) + 1
            placed = placer.place(record, generation)
            if placed is not None:
                self._assign(record, placed)
            else:
                left.append(record)
        self.unplaced = {record.id: placer.why_not(record) for record in left}

    def _refresh(self, record: ReplicaRecord) -> ReplicaRecord:
        if record.assignment is None and is_stained(record):
            record = after_change(record, {offer.key for offer in self.offers[record.model]})
            self.records[record.id] = record
        return record

    def _assign(self, record: ReplicaRecord, placed: Placed) -> None:
        launch = placed.launch
        self.records[record.id] = evolve(
            record,
            generation=launch.generation,
            assignment=Assignment(
                launch,
                placed_at=self.world.now,
                workers_first=placed.workers_first,
                head_first=placed.head_first,
                engine_version=placed.engine_version,
            ),
        )
        where = ", ".join(place.node for place in launch.places)
        told = f"{record.id}, generation {launch.generation}: on {where} with profile {launch.offer.profile_name}"
        self.happenings.append(Happening("replica placed", launch.places[0].node, told))

    def _orders(self, records: Iterable[ReplicaRecord]) -> Iterator[OrderTo]:
        for each in self.stale:
            status = each.status
            yield OrderTo(each.node, StopShard(status.replica, status.generation, status.rank))
        for record in records:
            if record.assignment is not None:
                yield from orders_of(record.assignment, self._look(record))

    def _times(self, wanted: Iterable[str]) -> Iterator[float]:
        """When time alone may change something."""
        now = self.world.now
        yield from (until for until in self.losses.spared.values() if until < inf)
        for name in wanted:
            record = self.records[name]
            for at in self._times_of(record):
                if at > now:
                    yield at

    def _times_of(self, record: ReplicaRecord) -> Iterator[float]:
        assignment = record.assignment
        if assignment is None:
            yield record.not_before
        elif not assignment.stopping:
            stable = stable_at(assignment)
            if stable is None:
                yield assignment.placed_at + self._deadline_s(assignment)
            elif is_stained(record):
                yield stable

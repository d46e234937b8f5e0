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
from llmgw_core.model.deployment import Assignment, Move, ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, StopShard
from llmgw_core.plan.attempt import is_ready, orders_of, serves
from llmgw_core.plan.loss import Losses, find_losses
from llmgw_core.plan.move import advance_move, is_under_way, nodes_of, stops_first
from llmgw_core.plan.moving import ANSWERS, Cause, find_cause_to_move, watch_traffic, why_called_off, why_not_now
from llmgw_core.plan.offer import offers_by_model
from llmgw_core.plan.parting import Gateways, end_of_hold, gateways_of, is_told
from llmgw_core.plan.placement import Placed, Placer, placing_order
from llmgw_core.plan.progress import Terms, advance, let_go, retired_if_over
from llmgw_core.plan.restart import after_change, in_the_past, is_stained, stable_at
from llmgw_core.plan.rollout import CHANGED, is_outdated, never_served, renew_offers
from llmgw_core.plan.room import survey
from llmgw_core.plan.roster import ordinal_of, plan_roster
from llmgw_core.plan.route import plan_routes
from llmgw_core.plan.sighting import Sighting, Stale, find_stale, look_at, reported_generations
from llmgw_core.plan.world import Decision, Happening, OrderTo, World


def reconcile(world: World) -> Decision:
    """Everything that is to be done now."""
    if world.catalog is None:
        return Decision()
    offers = offers_by_model(world.catalog, world.offers)
    losses = find_losses(world.nodes, world.lost_after_s, world.now, world.spared)
    stale = tuple(find_stale(world.nodes, world.records))
    reported = reported_generations(world.nodes, world.records)
    gateways = gateways_of(world)
    planning = _Planning(world, world.catalog, offers, losses, stale, reported, gateways)
    return planning.decide()


@define
class _Planning:
    """One pass: the records as they become, step by step."""

    world: World
    catalog: Catalog
    offers: Mapping[str, Sequence[Offer]]
    losses: Losses
    stale: Sequence[Stale]
    reported: Mapping[str, Mapping[str, int]]
    """By replica and node, the highest generation that runs there."""
    gateways: Gateways
    records: dict[str, ReplicaRecord] = field(init=False)
    happenings: list[Happening] = field(factory=list)
    unplaced: dict[str, str] = field(factory=dict)
    shortages: dict[str, str] = field(factory=dict)
    """The same in a few words, for whoever asks for the model."""
    blocked: dict[str, str] = field(factory=dict)
    _missing: dict[str, list[str]] | None = None
    """By model, who should serve and does not; from when moves begin."""
    _seen: dict[tuple[str, int], tuple[Sighting, ...]] = field(factory=dict)
    _placer: Placer | None = None

    def __attrs_post_init__(self) -> None:
        self.records = dict(self.world.records)

    def decide(self) -> Decision:
        self._renew_offers()
        wanted = self._call_the_roll()
        self._stop_idle(wanted)
        self._advance(frozenset(wanted))
        self._place(wanted)
        self._begin_moves(wanted)
        records = self._in_order()
        changed = [each for each in records if self._is_changed(each)]
        self._tell_passed_over(changed)
        return Decision(
            records=tuple(changed),
            orders=tuple(self._orders(records)),
            happenings=tuple(self.happenings),
            unplaced=self.unplaced,
            routes=plan_routes(self.catalog, records, frozenset(wanted), self.shortages, self._look),
            blocked=self.blocked,
            guarded=self.losses.reasons,
            spared=self.losses.spared,
            look_again_at=min(self._times(wanted), default=None),
        )

    def _tell_passed_over(self, changed: Iterable[ReplicaRecord]) -> None:
        for record in changed if self.gateways.seen else ():
            before = self.world.records.get(record.id)
            known = [each.launch for each in before.attempts if is_told(each)] if before is not None else []
            for each in record.attempts:
                if is_told(each) and each.launch not in known:
                    self.happenings += self.gateways.passed_over(each)

    def _renew_offers(self) -> None:
        """How patient one is with an engine may change while it runs: its nodes are told."""
        today = {offer.key: offer for offer in self.world.offers.values()}
        for record in self.world.records.values():
            renewed = renew_offers(record, today)
            if renewed is not record:
                self.records[record.id] = renewed

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
        if all(each.stopping for each in record.attempts):
            return 4 if record.attempts else 3
        if not self._serves(record):
            return 2
        return 1 if is_under_way(record) or self._cause(record) is not None else 0

    def _serves(self, record: ReplicaRecord) -> bool:
        return any(serves(each, self._look(each)) for each in record.attempts)

    def _look(self, assignment: Assignment | None) -> tuple[Sighting, ...]:
        if assignment is None:
            return ()
        launch = assignment.launch
        key = (launch.replica, launch.generation)
        if key not in self._seen:
            self._seen[key] = look_at(launch, self.world.nodes, self.losses.lost)
        return self._seen[key]

    def _cause(self, record: ReplicaRecord) -> Cause | None:
        return find_cause_to_move(record, self.world, self.offers.get(record.model, ()))

    def _stop_idle(self, wanted: Iterable[str]) -> None:
        by_model: dict[str, list[ReplicaRecord]] = {}
        for name in wanted:
            record = self.records[name]
            by_model.setdefault(record.model, []).append(record)
        for model, records in by_model.items():
            for record in never_served(records, self.offers[model], self._is_ready):
                self._stop(record, CHANGED, record.move)

    def _is_ready(self, record: ReplicaRecord) -> bool:
        assignment = record.assignment
        return assignment is not None and not assignment.stopping and is_ready(self._look(assignment))

    def _stop(self, record: ReplicaRecord, why: str, move: Move | None) -> None:
        assert record.assignment is not None  # noqa: S101 - only what was placed is stopped
        self.records[record.id] = evolve(record, assignment=self.gateways.depart(record.assignment, why), move=move)
        self.happenings.append(Happening("replica stopping", "", f"{record.id}: {why}"))

    def _advance(self, wanted: frozenset[str]) -> None:
        for record in self._in_order():
            if record.retired:
                continue
            record = self._above_reported(in_the_past(record, self.world.now))
            terms = self._terms(record, wanted)
            if record.move is None:
                step = advance(record, self._look(record.assignment), terms)
                if step.record.assignment is not None and step.record.assignment.held_since is not None:
                    step = evolve(step, record=let_go(step.record, self.gateways))
            else:
                seen_new = self._look(record.move.replacement)
                step = advance_move(record, self._look(record.assignment), seen_new, terms)
            self.records[record.id] = retired_if_over(step.record, terms.unwanted)
            self.happenings += step.happenings

    def _terms(self, record: ReplicaRecord, wanted: frozenset[str]) -> Terms:
        newest, move, offers = self._newest_on_its_nodes(record), record.move, self.offers.get(record.model, ())
        replacement = move.replacement if move is not None else None
        return Terms(
            now=self.world.now,
            deadline_s=self._deadline_s(record.assignment),
            unwanted="" if record.id in wanted else self._why_unwanted(record.model),
            superseded=newest if newest > record.generation else 0,
            called_off="" if move is None else why_called_off(move, self._cause(record), self.world, offers),
            soak_s=self.world.soak_s,
            replacement_deadline_s=self._deadline_s(replacement),
            gateways=self.gateways,
            replacement_outdated=bool(replacement is not None and offers and is_outdated(replacement, offers)),
        )

    def _above_reported(self, record: ReplicaRecord) -> ReplicaRecord:
        """While it waits: when what runs of it is stopped, nobody may report it any more."""
        newest = max(self.reported.get(record.id, {}).values(), default=0)
        return evolve(record, generation=newest) if newest > record.generation and not record.attempts else record

    def _newest_on_its_nodes(self, record: ReplicaRecord) -> int:
        """What others report is stopped there, and takes nothing down."""
        reported = self.reported.get(record.id, {})
        if max(reported.values(), default=0) <= record.generation:
            return 0
        return max((reported.get(node, 0) for each in record.attempts for node in nodes_of(each)), default=0)

    def _why_unwanted(self, model: str) -> str:
        if model not in self.catalog.models:
            return f"the catalog has no model {model} any more"
        return f"{self.world.wanted.get(model, self.catalog.models[model].replicas)} replicas of {model} are enough"

    def _deadline_s(self, assignment: Assignment | None) -> float:
        return assignment.launch.offer.profile.health.start_deadline_s if assignment is not None else 0.0

    def _place(self, wanted: Iterable[str]) -> None:
        waiting = [record for name in wanted if _has_no_attempt(record := self._refresh(self.records[name]))]
        due = [record for record in waiting if record.not_before <= self.world.now]
        for record in sorted(due, key=self._order):
            placed = self._placer_now().place(record, self._next_generation(record))
            if placed is not None:
                self._assign(record, placed)
            else:
                self.unplaced[record.id] = self._placer_now().why_not(record)
                self.shortages[record.id] = self._placer_now().why_not_briefly(record)

    def _placer_now(self) -> Placer:
        if self._placer is None:
            records = self._in_order()
            launches = [each.launch for record in records for each in record.attempts]
            rooms = survey(self.world.nodes, launches, self.stale)
            self._placer = Placer(rooms, self.offers, self.world.refuted, self.world.seed)
            for record in records:
                if record.assignment is not None and record.assignment.stopping and stops_first(record):
                    self._keep_place(record, record.assignment)
        return self._placer

    def _keep_place(self, record: ReplicaRecord, original: Assignment) -> bool:
        """Whether it would have a place without its original, which is kept for it from now on."""
        return self._placer_now().place_instead(record, self._next_generation(record), original.launch) is not None

    def _refresh(self, record: ReplicaRecord) -> ReplicaRecord:
        if record.assignment is None and is_stained(record):
            record = after_change(record, {offer.key for offer in self.offers[record.model]})
            self.records[record.id] = record
        return record

    def _order(self, record: ReplicaRecord) -> tuple[bool, int, str, int]:
        """Who stopped first for a place goes before those who only wait for one."""
        return not stops_first(record), *placing_order(record, self.offers[record.model])

    def _next_generation(self, record: ReplicaRecord) -> int:
        return max(record.generation, *self.reported.get(record.id, {}).values(), 0) + 1

    def _assign(self, record: ReplicaRecord, placed: Placed) -> None:
        assignment = _assignment_of(placed, self.world.now)
        self.records[record.id] = evolve(record, generation=placed.launch.generation, assignment=assignment)
        self._tell_placed("replica placed", placed.launch)

    def _tell_placed(self, kind: str, launch: Launch, why: str = "") -> None:
        where = ", ".join(place.node for place in launch.places)
        told = f"{launch.replica}, generation {launch.generation}: on {where} with profile {launch.offer.profile_name}"
        self.happenings.append(Happening(kind, launch.places[0].node, f"{told}{why}"))

    def _begin_moves(self, wanted: Iterable[str]) -> None:
        there = [self.records[name] for name in wanted]
        causes = {each.id: cause for each in there if _may_move(each) and (cause := self._cause(each)) is not None}
        if not causes:
            return
        traffic = watch_traffic(self.records.values(), causes, self.world.drains, self.unplaced)
        due = [self.records[name] for name in causes if not is_under_way(self.records[name])]
        for record in sorted(due, key=lambda each: (causes[each.id].asked_at, *self._order(each))):
            cause = causes[record.id]
            why_not = why_not_now(record, cause, traffic, self.world) or self._begin_move(record, cause)
            if why_not:
                self.blocked[record.id] = why_not
            else:
                traffic.add(record, self.world.drains)

    def _begin_move(self, record: ReplicaRecord, cause: Cause) -> str:
        """Why it could not; empty: it has begun."""
        move = cause.go_on(record.move, self.world.now)
        moving = evolve(record, move=move)
        assert record.assignment is not None  # noqa: S101 - it is what moves
        original = record.assignment.launch
        placed = self._placer_now().place_beside(moving, self._next_generation(record), original)
        if placed is not None:
            replacement = _assignment_of(placed, self.world.now)
            generation = placed.launch.generation
            self.records[record.id] = evolve(record, generation=generation, move=evolve(move, replacement=replacement))
            self._tell_placed("replacement placed", placed.launch, f", since {move.why}")
            return ""
        silent = self._placer_now().awaits_answers(moving)
        if silent:
            return f"{ANSWERS}{', '.join(silent[:3])}{' and others' if len(silent) > 3 else ''}"
        why = self._placer_now().why_not(moving)
        if not self._placer_now().lacks_room_only(moving):
            return f"no place for its replacement: {why}"
        no_room = f"no room for its replacement: {why}"
        if not cause.stop_first:
            return f"{no_room}; make room, or let it stop first with --allow-stop-first"
        return self._stop_first(moving, cause, no_room)

    def _stop_first(self, record: ReplicaRecord, cause: Cause, no_room: str) -> str:
        """Why it may not, as above. Two of one model are never down for a move."""
        assert record.assignment is not None  # noqa: S101 - it is what moves
        assert record.move is not None  # noqa: S101 - it has just been made
        reserve = self._find_missing(record) if self._serves(record) else ""
        if reserve:
            return f"{no_room}; it may stop first, but not while {reserve} is not ready"
        if not self._keep_place(record, record.assignment):
            return f"{no_room}; nor would there be if it stopped first"
        self._stop(record, f"{cause.why}, and it may stop first", evolve(record.move, stop_first=True))
        return ""

    def _find_missing(self, record: ReplicaRecord) -> str:
        """Another replica of its model that should serve and does not; not one that waits for room itself."""
        if self._missing is None:
            self._missing = {}
            for each in self._in_order():
                if not each.retired and each.id not in self.unplaced and not self._serves(each):
                    self._missing.setdefault(each.model, []).append(each.id)
        return next((name for name in self._missing.get(record.model, ()) if name != record.id), "")

    def _orders(self, records: Iterable[ReplicaRecord]) -> Iterator[OrderTo]:
        for each in self.stale:
            status = each.status
            yield OrderTo(each.node, StopShard(status.replica, status.generation, status.rank))
        for record in records:
            for assignment in record.attempts:
                yield from orders_of(assignment, self._look(assignment))

    def _times(self, wanted: Iterable[str]) -> Iterator[float]:
        """When time alone may change something."""
        now = self.world.now
        records = [self.records[name] for name in wanted]
        times = [at for record in records for at in self._times_of(record)]
        times += [drain.until for drain in self.world.drains.values() if drain.until is not None]
        times += [until for until in self.losses.spared.values() if until < inf]
        held = [each for record in self.records.values() for each in record.attempts if each.held_since is not None]
        times += map(end_of_hold, held)
        if held or any(record.move is not None and record.move.steady_since is not None for record in records):
            times += self.gateways.times()
        return (at for at in times if at > now)

    def _times_of(self, record: ReplicaRecord) -> Iterator[float]:
        assignment, move = record.assignment, record.move
        if assignment is None:
            yield record.not_before
        elif not assignment.stopping:
            stable = stable_at(assignment)
            if stable is None:
                yield assignment.placed_at + self._deadline_s(assignment)
            elif is_stained(record):
                yield stable
        if move is None or move.replacement is None or move.replacement.stopping:
            return
        if move.steady_since is not None:
            yield move.steady_since + self.world.soak_s
        elif move.replacement.ready_at is None:
            yield move.replacement.placed_at + self._deadline_s(move.replacement)


def _assignment_of(placed: Placed, now: float) -> Assignment:
    return Assignment(
        placed.launch,
        placed_at=now,
        workers_first=placed.workers_first,
        head_first=placed.head_first,
        engine_version=placed.engine_version,
    )


def _has_no_attempt(record: ReplicaRecord) -> bool:
    return not record.attempts


def _may_move(record: ReplicaRecord) -> bool:
    return record.assignment is not None and not record.assignment.stopping

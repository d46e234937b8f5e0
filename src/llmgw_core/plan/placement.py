"""Where a replica goes.

In: the offers, what is free, a replica.  Out: a `Placed`, or why there is no place.  Pure.
Rules: the first of the model's profiles that has a place; all shards or none; a group is on one fabric, with one engine
version and one help digest; a node where it failed again and again comes last; equal worlds give equal places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field, frozen

from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, OfferChecked, Place
from llmgw_core.plan.candidate import NOT_ANSWERED, Candidate, Filter, Refused, examine
from llmgw_core.plan.engine_key import make_engine_key
from llmgw_core.plan.pool import Build, Pool, pool_of
from llmgw_core.plan.port import rendezvous_port, serve_port
from llmgw_core.plan.restart import REPEATED, refusal_mark
from llmgw_core.plan.room import Rooms
from llmgw_core.plan.roster import ordinal_of
from llmgw_core.plan.shortage import Shortage, render_briefly, render_shortages


@frozen
class Placed:
    launch: Launch
    workers_first: bool
    head_first: bool
    engine_version: str | None


@frozen
class _Group:
    """So many nodes of one pool, chosen for a replica."""

    pool: Pool
    fabric: str
    names: tuple[str, ...]


@define
class _Choice:
    """All that is known of one offer: who was refused at once, and the pools of those who were not."""

    offer: Offer
    refused: tuple[Refused, ...]
    candidates: dict[str, Candidate]
    pools: dict[Build, Pool]
    full: bool = False
    """Whether a replica with nothing against it found no place; places only become fewer."""


def placing_order(record: ReplicaRecord, offers: Sequence[Offer]) -> tuple[int, str, int]:
    """The largest first: the small ones fit into what is left."""
    size = offers[0].profile.nodes * offers[0].profile.gpus_per_node if offers else 0
    return -size, record.model, ordinal_of(record.id)


@define
class Placer:
    """Places one replica after the other; what is taken stays taken."""

    rooms: Rooms
    offers: Mapping[str, Sequence[Offer]]
    """By model, the preferred first."""
    refuted: Mapping[str, str]
    seed: str = field(default="", repr=False)
    """Of which keys of engines are made."""
    _choices: dict[str, _Choice] = field(factory=dict)
    _told: dict[str, tuple[int, str]] = field(factory=dict)
    """By model, why a replica has no place, and how much was taken when that was said."""
    _told_briefly: dict[str, tuple[int, str]] = field(factory=dict)
    _checked: dict[str, Mapping[str, OfferChecked]] = field(factory=dict)

    def place(self, record: ReplicaRecord, generation: int) -> Placed | None:
        for offer in self.offers.get(record.model, ()):
            choice = self.choice(offer)
            if choice.full:
                continue
            never = self._never(record, choice)
            group = self._find(choice, record, never)
            if group is not None:
                placed = self._settle(record, generation, offer, group)
                self.rooms.take(placed.launch)
                return placed
            choice.full = not never
        return None

    def place_beside(self, record: ReplicaRecord, generation: int, original: Launch) -> Placed | None:
        """Where its replacement goes: the original, which goes then, keeps nobody of its model at a distance."""
        before = len(self.rooms.changed)
        self.rooms.count_model(original, -1)
        placed = self.place(record, generation)
        self.rooms.count_model(original, 1)
        if placed is None:
            self._keep_told(before)
        return placed

    def place_instead(self, record: ReplicaRecord, generation: int, launch: Launch) -> Placed | None:
        """Where it would go if this attempt of it were gone; the place is kept free for it from now on."""
        before = len(self.rooms.changed)
        self.give_back(launch)
        placed = self.place(record, generation)
        self.rooms.take(launch)
        if placed is None:
            self._keep_told(before)
        return placed

    def _keep_told(self, before: int) -> None:
        """All is as it was after so many changes, and what was told of it holds."""
        after = len(self.rooms.changed)
        told = self._told.items()
        self._told = {model: (after if taken == before else taken, why) for model, (taken, why) in told}

    def give_back(self, launch: Launch) -> None:
        """As if nothing of it were left."""
        self.rooms.give_back(launch)
        for choice in self._choices.values():
            choice.full = False

    def has_place(self, offer: Offer, record: ReplicaRecord) -> bool:
        """Whether one more like this one would have one."""
        choice = self.choice(offer)
        return self._find(choice, record, self._never(record, choice)) is not None

    def awaits_answers(self, record: ReplicaRecord) -> list[str]:
        """The nodes that have not said yet whether they would take it."""
        offers = self.offers.get(record.model, ())
        refused = (each for offer in offers for each in self.choice(offer).refused)
        return sorted({each.node for each in refused if each.reason == NOT_ANSWERED})

    def lacks_room_only(self, record: ReplicaRecord) -> bool:
        """Whether there are nodes that would take it, if they were empty."""
        choices = [self.choice(offer) for offer in self.offers.get(record.model, ())]
        return any(choice.candidates.keys() - self._never(record, choice).keys() for choice in choices)

    def why_not(self, record: ReplicaRecord) -> str:
        """Why it has no place, in one line."""
        offers = self.offers.get(record.model, ())
        if not offers:
            return "none of its profiles is known"
        if any(self._never(record, self.choice(offer)) for offer in offers):
            return render_shortages([self.shortage(offer, record) for offer in offers])
        # The same for all replicas of the model that have nothing against any node, and there may be hundreds.
        taken, told = self._told.get(record.model, (-1, ""))
        if taken != len(self.rooms.changed):
            told = render_shortages([self.shortage(offer) for offer in offers])
            self._told[record.model] = len(self.rooms.changed), told
        return told

    def why_not_briefly(self, record: ReplicaRecord) -> str:
        """The same for whoever asks for the model: of its preferred profile, and without names of nodes."""
        offers = self.offers.get(record.model, ())
        if not offers:
            return ""
        taken, told = self._told_briefly.get(record.model, (-1, ""))
        if taken != len(self.rooms.changed):
            told = render_briefly(self.shortage(offers[0]))
            self._told_briefly[record.model] = len(self.rooms.changed), told
        return told

    def shortage(self, offer: Offer, record: ReplicaRecord | None = None) -> Shortage:
        """Who could take a shard of it, and what speaks against the others."""
        choice = self.choice(offer)
        for pool in choice.pools.values():
            pool.catch_up(self.rooms)
        never = self._never(record, choice) if record is not None else {}
        return Shortage(offer, choice.refused, choice.candidates, choice.pools, self.rooms.by_name.values(), never)

    def choice(self, offer: Offer) -> _Choice:
        found = self._choices.get(offer.key)
        if found is None:
            found = self._choices[offer.key] = self._examine(offer)
        return found

    def _examine(self, offer: Offer) -> _Choice:
        refused, candidates = [], {}
        for name, room in self.rooms.by_name.items():
            result = examine(room, offer, self._answers(name), self.refuted)
            if isinstance(result, Refused):
                refused.append(result)
            else:
                candidates[name] = result
        builds = _builds(candidates.values(), offer)
        pools = {build: pool_of(offer, those, self.rooms) for build, those in sorted(builds.items(), key=_sortable)}
        return _Choice(offer, tuple(refused), candidates, pools)

    def _answers(self, name: str) -> Mapping[str, OfferChecked]:
        found = self._checked.get(name)
        if found is None:
            facts = self.rooms.by_name[name].node.facts
            found = self._checked[name] = {each.key: each for each in facts.offers} if facts is not None else {}
        return found

    def _never(self, record: ReplicaRecord, choice: _Choice) -> dict[str, Refused]:
        """The nodes that this very replica must not go to."""
        found = {}
        for name in _marked(record, choice.offer):
            candidate = choice.candidates.get(name)
            if candidate and record.refused_by[refusal_mark(name, choice.offer)] == (
                candidate.engine.help_digest or ""
            ):
                found[name] = Refused(name, Filter.COMMAND, f"refused its command{_said(record, name)}")
        for name in record.move.failed_on if record.move is not None else ():
            found[name] = Refused(name, Filter.COMMAND, f"failed to run its replacement{_said(record, name)}")
        for name in sorted(self.rooms.strangers.get(record.id, ())):
            found[name] = Refused(name, Filter.ELIGIBLE, "still ends an earlier attempt of it")
        return found

    def _find(self, choice: _Choice, record: ReplicaRecord, never: Mapping[str, Refused]) -> _Group | None:
        last = {name for name, count in record.failed_on.items() if count >= REPEATED}
        found: list[tuple[tuple[int, int, int], _Group]] = []
        for build, pool in choice.pools.items():
            pool.catch_up(self.rooms)
            names = pool.best(choice.offer.profile.nodes, last, never)
            if len(names) == choice.offer.profile.nodes:
                shared = sum(pool.fit[name][0] for name in names)
                key = (sum(name in last for name in names), shared, len(pool.fit))
                found.append((key, _Group(pool, build[0], tuple(names))))
        return min(found, key=lambda each: each[0])[1] if found else None

    def _settle(self, record: ReplicaRecord, generation: int, offer: Offer, group: _Group) -> Placed:
        members = [group.pool.candidates[name] for name in group.names]
        head = members[0]
        meeting = None
        if offer.profile.nodes > 1:
            facts = head.facts
            meeting = rendezvous_port(facts.rendezvous_ports, head.room.ports, generation, record.last_ports)
        places = tuple(_place(each, offer, group.fabric, generation, record, meeting) for each in members)
        keyed = offer.profile.engine_key and all(each.checked.takes_key for each in members)
        key = make_engine_key(self.seed, record.id, generation) if keyed else ""
        return Placed(
            Launch(record.id, generation, offer, places, meeting, key),
            workers_first=any(each.checked.workers_first for each in members),
            head_first=any(each.checked.head_first for each in members),
            engine_version=head.engine.version,
        )


def _place(
    member: Candidate, offer: Offer, fabric: str, generation: int, record: ReplicaRecord, meeting: int | None
) -> Place:
    facts, profile = member.facts, offer.profile
    taken = member.room.ports if meeting is None else member.room.ports | {meeting}
    port = serve_port(facts.serve_ports, taken, generation, record.last_ports)
    assert port is not None  # noqa: S101 - a candidate without a free port has no room
    gpus = member.room.free_gpus(profile.min_gpu_memory_mib)[: profile.gpus_per_node] if profile.gpus_per_node else ()
    hcas = next((each.hcas for each in member.fabrics if each.name == fabric), ())
    return Place(member.name, facts.address, port, tuple(gpus), hcas, facts.interface)


def _said(record: ReplicaRecord, node: str) -> str:
    """What was said of the failure there, where it is remembered."""
    moved = record.move.failure if record.move is not None else None
    for failure in (moved, record.last_failure, record.first_failure):
        if failure is not None and failure.node == node:
            return f": {failure.reason}"
    return ""


def _marked(record: ReplicaRecord, offer: Offer) -> list[str]:
    return [node for node, _, key in (mark.rpartition(" ") for mark in record.refused_by) if key == offer.key]


def _builds(candidates: Iterable[Candidate], offer: Offer) -> dict[Build, dict[str, Candidate]]:
    """The candidates among which a group may be made; a single node is on no fabric, whatever its version."""
    found: dict[Build, dict[str, Candidate]] = {}
    for each in candidates:
        if offer.profile.nodes == 1:
            found.setdefault(("", None, None), {})[each.name] = each
        for fabric in each.fabrics:
            found.setdefault((fabric.name, *each.build), {})[each.name] = each
    return found


def _sortable(item: tuple[Build, dict[str, Candidate]]) -> tuple[str, str, str]:
    fabric, version, digest = item[0]
    return fabric, version or "", digest or ""

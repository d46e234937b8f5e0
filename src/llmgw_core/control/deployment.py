"""What is desired and what was decided, in memory as in the store; and the one bell that wakes the planner."""

from __future__ import annotations

from collections.abc import Mapping

import trio
from attrs import define, field

from llmgw_core.codec import BadFile, parse_catalog
from llmgw_core.errors import LlmgwError
from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.drain import Drain, Rollout
from llmgw_core.model.launch import Offer
from llmgw_core.plan.drain import DrainState
from llmgw_core.plan.world import Decision
from llmgw_core.store.database import Database
from llmgw_core.store.reading import (
    AppliedCatalog,
    read_catalog,
    read_created,
    read_drains,
    read_replicas,
    read_rollouts,
    read_scales,
    read_served,
)
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, Offers
from llmgw_core.wire.record import offer_key, parse_offers, parse_record
from llmgw_core.wire.text import encode

OFFERS_BYTES = MESSAGE_LIMIT_BYTES // 2
SOAK_S = 10.0
OfferBook = Mapping[tuple[str, str], Offer]


class TooMuchOffered(LlmgwError):
    """A catalog that fits into no message to a node."""


class Unreadable(LlmgwError):
    """A store that another release wrote, or that is damaged."""


def make_offers(catalog: Catalog) -> OfferBook:
    """Each model with each of its profiles; raises `TooMuchOffered`."""
    made: dict[tuple[str, str], Offer] = {}
    for name, model in catalog.models.items():
        for profile_name in model.profiles:
            profile = catalog.profile(profile_name)
            key = offer_key(name, model.source, profile)
            made[name, profile_name] = Offer(key, name, model.source, profile_name, profile)
    size = len(encode(Offers(tuple(made.values()))))
    if size > OFFERS_BYTES:
        raise TooMuchOffered(f"the catalog's models and profiles take {size} bytes, over {OFFERS_BYTES}: split it")
    return made


@define(eq=False)
class Deployment:
    """Changed only after the same is in the store."""

    catalog: Catalog | None = None
    """`None`: none was ever applied, or it cannot be read; nothing that runs is touched, and no gateway is told."""
    applied: AppliedCatalog | None = None
    scales: dict[str, int] = field(factory=dict)
    offers: OfferBook = field(factory=dict)
    """What is offered to the nodes now."""
    drains: dict[str, Drain] = field(factory=dict)
    """By node."""
    rollouts: dict[str, Rollout] = field(factory=dict)
    """By model."""
    served: dict[str, tuple[Offer, ...]] = field(factory=dict)
    """By model, how its replicas ran before its last change."""
    rolled_back: set[str] = field(factory=set)
    records: dict[str, ReplicaRecord] = field(factory=dict)
    decision: Decision = field(factory=Decision)
    """The last one; for views, which show why something has no place."""
    soak_s: float = SOAK_S
    """How long a replacement must have been ready before its original goes."""
    created: dict[str, float] = field(factory=dict)
    """By model that was ever applied, when it first was."""
    drain_states: dict[str, DrainState] = field(factory=dict)
    """By node, as the last pass found it."""
    desired: int = 0
    """How often an operator changed something."""
    decided: int = 0
    """As `desired` was for the last decision."""
    _bell: trio.Event = field(factory=trio.Event)

    def look_again(self) -> None:
        """Something changed of which the planner may make something."""
        self._bell.set()

    def desire_again(self) -> None:
        """The same, by an operator: what is being planned at this moment is out of date."""
        self.desired += 1
        self._bell.set()

    @property
    def blocked(self) -> Mapping[str, str]:
        """By replica, why it cannot move; nothing while the planner has not looked since an operator's last word."""
        return self.decision.blocked if self.decided == self.desired else {}

    @property
    def draining(self) -> dict[str, DrainState]:
        """By node."""
        return {node: self.drain_states.get(node, DrainState.DRAINING) for node in self.drains}

    async def wait_for_bell(self) -> None:
        await self._bell.wait()
        self._bell = trio.Event()

    @property
    def wanted(self) -> dict[str, int]:
        """By model, how many replicas."""
        models = self.catalog.models if self.catalog else {}
        return {name: self.scales.get(name, model.replicas) for name, model in models.items()}

    def desire(self, applied: AppliedCatalog, catalog: Catalog, offers: OfferBook) -> None:
        self.applied, self.catalog = applied, catalog
        for name in catalog.models:
            self.created.setdefault(name, applied.at)
        # Equal offers stay the same objects, so that the planner's comparisons cost nothing.
        known = {offer: offer for offer in self.offers.values()}
        self.offers = {key: known.get(offer, offer) for key, offer in offers.items()}
        self.scales, self.rollouts, self.rolled_back = {}, {}, set()

    def offers_of(self, model: str) -> tuple[Offer, ...]:
        """What is offered of a model, the preferred first."""
        return tuple(offer for (name, _), offer in self.offers.items() if name == model)

    def roll_back(self, model: str) -> None:
        """Offer of it what served before its last change, in place of what the catalog says."""
        others = {key: offer for key, offer in self.offers.items() if key[0] != model}
        self.offers = {**others, **{(model, offer.profile_name): offer for offer in self.served[model]}}
        self.rolled_back.add(model)

    def load(self, database: Database) -> list[str]:
        """As it was stored; what could not be read. Raises `Unreadable` where what runs would be taken for nobody's."""
        unreadable = []
        self.created = read_created(database)
        applied = read_catalog(database)
        if applied is not None:
            try:
                catalog = parse_catalog(applied.text, applied.name)
                self.desire(applied, catalog, make_offers(catalog))
            except (BadFile, TooMuchOffered) as error:
                unreadable.append(f"the applied catalog {applied.name}: {error}")
        self.scales = {model: n for model, n in read_scales(database).items() if model in self.wanted}
        self.drains, self.rollouts = read_drains(database), read_rollouts(database)
        unreadable += self._load_served(database)
        for id, text in read_replicas(database).items():
            try:
                self.records[id] = parse_record(text)
            except Exception as error:
                why = f"{type(error).__name__}: {str(error)[:200]}"
                raise Unreadable(
                    f"cannot read what was decided about {id} ({why}): without it its engines would be stopped; "
                    "install the release that wrote it, or restore the store from a backup"
                ) from error
        return unreadable

    def _load_served(self, database: Database) -> list[str]:
        unreadable = []
        for model, served in read_served(database).items():
            try:
                self.served[model] = parse_offers(served.offers)
            except Exception as error:
                unreadable.append(f"how {model} ran before: {type(error).__name__}: {str(error)[:200]}")
                continue
            if served.rolled_back and model in self.wanted:
                self.roll_back(model)
        return unreadable

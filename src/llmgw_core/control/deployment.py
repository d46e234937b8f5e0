"""What is desired and what was decided, in memory as in the store; and the one bell that wakes the planner."""

from __future__ import annotations

from collections.abc import Mapping

import trio
from attrs import define, field

from llmgw_core.codec import BadFile, parse_catalog
from llmgw_core.errors import LlmgwError
from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Offer
from llmgw_core.plan.world import Decision
from llmgw_core.store.database import Database
from llmgw_core.store.reading import AppliedCatalog, read_catalog, read_replicas, read_scales
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, Offers
from llmgw_core.wire.record import offer_key, parse_record
from llmgw_core.wire.text import encode

OFFERS_BYTES = MESSAGE_LIMIT_BYTES // 2
OfferBook = Mapping[tuple[str, str], Offer]


class TooMuchOffered(LlmgwError):
    """A catalog that fits into no message to a node."""


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
    applied: AppliedCatalog | None = None
    scales: dict[str, int] = field(factory=dict)
    offers: OfferBook = field(factory=dict)
    records: dict[str, ReplicaRecord] = field(factory=dict)
    decision: Decision = field(factory=Decision)
    """The last one; for views, which show why something has no place."""
    _bell: trio.Event = field(factory=trio.Event)

    def look_again(self) -> None:
        """Something changed of which the planner may make something."""
        self._bell.set()

    async def wait_for_bell(self) -> None:
        await self._bell.wait()
        self._bell = trio.Event()

    @property
    def wanted(self) -> dict[str, int]:
        """By model, how many replicas."""
        models = self.catalog.models if self.catalog else {}
        return {name: self.scales.get(name, model.replicas) for name, model in models.items()}

    def desire(self, applied: AppliedCatalog, catalog: Catalog, offers: OfferBook) -> None:
        self.applied, self.catalog, self.offers, self.scales = applied, catalog, offers, {}

    def load(self, database: Database) -> list[str]:
        """As it was stored; what could not be read."""
        unreadable = []
        applied = read_catalog(database)
        if applied is not None:
            try:
                catalog = parse_catalog(applied.text, applied.name)
                self.desire(applied, catalog, make_offers(catalog))
            except (BadFile, TooMuchOffered) as error:
                unreadable.append(f"the applied catalog {applied.name}: {error}")
        self.scales = {model: n for model, n in read_scales(database).items() if model in self.wanted}
        for id, text in read_replicas(database).items():
            try:
                self.records[id] = parse_record(text)
            except Exception as error:
                unreadable.append(f"the record of {id}: {type(error).__name__}: {str(error)[:200]}")
        return unreadable

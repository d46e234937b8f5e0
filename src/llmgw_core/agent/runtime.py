"""Everything of the agent that runs engines, in one object: made, read from disk, kept going.

It needs no control plane: whoever has it may offer, order, look and read logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import trio
from attrs import define, field

from llmgw_core.agent.housing import Housing, choose_housing
from llmgw_core.agent.inventory import Inventory
from llmgw_core.agent.node import Node, agent_digest
from llmgw_core.agent.offers import OfferBook
from llmgw_core.agent.shard_files import ShardFiles
from llmgw_core.agent.shards import Shards
from llmgw_core.agent.weights import Weights
from llmgw_core.discovery.engines import Inspected, Named
from llmgw_core.engines import Engines
from llmgw_core.model.launch import Offer, OfferChecked, Order
from llmgw_core.model.node import NOT_LOOKED_YET, SERVE_PORTS, EngineFound, PortRange
from llmgw_core.model.shard import ShardStatus
from llmgw_core.wire.message import LogRead, ReadLog

INVENTORY_FILE = "engines.json"


def _nothing(_: object) -> None:
    pass


@define(eq=False)
class Runtime:
    """`offer`, `order`, `statuses`, `read_log`; `run` keeps it going until it is cancelled."""

    engines: Engines
    state: Path
    named: Named
    look_at_weights: Callable[[str], str]
    tell_engines: Callable[[tuple[EngineFound, ...]], None] = _nothing
    tell_offers: Callable[[tuple[OfferChecked, ...]], None] = _nothing
    serve_ports: PortRange = SERVE_PORTS
    environ: Mapping[str, str] = field(factory=lambda: dict(os.environ))
    housing: Housing = field(factory=choose_housing)
    shards: Shards = field(init=False)
    inventory: Inventory = field(init=False)
    _offers: OfferBook = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.inventory = Inventory(self.engines, self.named, self.state / INVENTORY_FILE, self._note_engines)
        weights = Weights(self.look_at_weights)
        node = Node(
            engines=self.engines,
            inventory=self.inventory,
            files=ShardFiles(self.state),
            housing=self.housing,
            agent=agent_digest(self.state),
            weights=weights,
            environ=self.environ,
            serve_ports=self.serve_ports,
        )
        self.shards = Shards(node)
        self._offers = OfferBook(self.engines, weights, lambda: self.inventory.known, self.tell_offers)

    def read(self) -> None:
        """What the last agent left: its engines, and the shards that may still run. It blocks: for the start."""
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.inventory.read()
        self.shards.read()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.inventory.watch)
            nursery.start_soon(self._offers.watch)
            nursery.start_soon(self.shards.live)

    def _note_engines(self, known: tuple[Inspected, ...]) -> None:
        found = {each.found.engine: each.found for each in known}
        unseen = {plugin.info.name for plugin in self.engines.loaded} - found.keys()
        found |= {name: EngineFound(name, None, reason=NOT_LOOKED_YET) for name in unseen}
        self.tell_engines(tuple(found[name] for name in sorted(found)))
        self._offers.engines_changed()

    def offer(self, offers: tuple[Offer, ...]) -> None:
        """All that may be asked of this node; the answers are told."""
        self._offers.offer(offers)

    def order(self, order: Order) -> None:
        """Counts at once: `statuses` has it."""
        self.shards.order(order)

    def statuses(self) -> tuple[ShardStatus, ...]:
        return self.shards.statuses()

    async def wait_other_than(self, said: tuple[ShardStatus, ...] | None) -> tuple[ShardStatus, ...]:
        return await self.shards.wait_other_than(said)

    async def read_log(self, ask: ReadLog) -> LogRead:
        return await self.shards.read_log(ask)

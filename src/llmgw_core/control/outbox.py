"""What is said to one node's agent on one link, and what it has heard of it.

Rules: an order is said once on a link; the latest one for a shard counts; what the agent lists counts as complete only
when it has heard the last order.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from llmgw_core.model.launch import Order, RunShard
from llmgw_core.model.shard import ShardStatus
from llmgw_core.wire.message import Message, Offers, Ordered

MOST_UNHEARD = 4096
"""So many orders that are over are remembered for a node that does not say that it has heard them."""
_Key = tuple[str, int, int]


@define(eq=False)
class Outbox:
    shards: tuple[ShardStatus, ...] | None = None
    """What the node runs; `None` before it has said so."""
    heard: int = 0
    number: int = 0
    """Of the last order."""
    offers: object = None
    """The offers that it was told of."""
    sending: bool = False
    _said: dict[_Key, Order] = field(factory=dict)
    _waiting: list[Message] = field(factory=list)

    @property
    def settled(self) -> bool:
        return self.shards is not None and self.heard == self.number

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def tell_offers(self, offers: object, message: Offers) -> None:
        """Nobody is told of no offers who never had any."""
        if self.offers is not offers and (self.offers is not None or message.offers):
            self.offers = offers
            self._waiting.append(message)

    def order(self, orders: Iterable[Order]) -> None:
        current: set[_Key] = set()
        for order in orders:
            key = _key(order)
            current.add(key)
            if self._said.get(key) != order:
                self._said[key] = order
                self.number += 1
                self._waiting.append(Ordered(self.number, order))
        if len(self._said) > len(current) + (0 if self.settled else MOST_UNHEARD):
            self._said = {key: order for key, order in self._said.items() if key in current}

    def take(self) -> list[Message]:
        taken, self._waiting = self._waiting, []
        return taken


def _key(order: Order) -> _Key:
    if isinstance(order, RunShard):
        return order.launch.replica, order.launch.generation, order.rank
    return order.replica, order.generation, order.rank

"""What every part of the control plane needs: its memory, its writer, its clock, its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio
from attrs import field, frozen

from llmgw_core.control.deployment import Deployment
from llmgw_core.control.fleet import Fleet
from llmgw_core.control.routing import RoutesBook
from llmgw_core.control.writer import Writer
from llmgw_core.store.change import EventHappened
from llmgw_core.store.database import Database
from llmgw_core.store.reading import StoredKey
from llmgw_core.wire.facts import clipped

EVENT_CHARACTERS = 500
log = logging.getLogger("llmgw.control")


@frozen
class Plane:
    fleet: Fleet
    database: Database
    """For reading; not for writing."""
    writer: Writer
    now: Callable[[], float]
    """Seconds since 1970."""
    authority: Path | None = None
    """The authority's directory, where it is reachable: then certificates are renewed over the link."""
    deployment: Deployment = field(factory=Deployment)
    keys: dict[str, StoredKey] = field(factory=dict)
    """By id, all API keys of users that were ever made; as in the store."""
    changing: trio.Lock = field(factory=trio.Lock)
    """Held by the operator's order that changes what is desired: so that the last one in the store is the last one in
    memory, whoever of two is woken first."""
    routes: RoutesBook = field(init=False)

    @routes.default
    def _make_routes(self) -> RoutesBook:
        return RoutesBook(self.now, self.deployment.look_again)

    def event(self, kind: str, node: str, reason: str) -> EventHappened:
        """A line for the log now, and a change for the store."""
        reason = clipped(reason, EVENT_CHARACTERS)
        log.info(kind, extra={"node": node, "reason": reason})
        return EventHappened(kind, node, reason, self.now())

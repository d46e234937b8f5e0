"""A gateway's link: tables in, what was taken of them out. Without it requests go on by the last table.

Rules, beside those of `net.calling`: a table counts at once; what is said is what all workers do, not what was heard.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from importlib.metadata import version

import trio
from attrs import define, field

from llmgw_core.gateway.routing import Routing
from llmgw_core.net.call import Server
from llmgw_core.net.calling import beat, call_for_ever, greet, hear
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.renewal import Renewal
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.plan.liveness import HEARTBEAT_S
from llmgw_core.wire.message import (
    PROTOCOL,
    ROUTES_LIMIT_BYTES,
    CertificateRenewed,
    Hello,
    Leaving,
    Routes,
    RoutesTaken,
    Welcome,
)

AGAIN_S = 5.0
"""Between two calls at most: there are few gateways, and what they miss (a revoked key) is let in meanwhile."""
LEAVE_S = 2.0
_log = logging.getLogger("llmgw.gateway")


@define(eq=False)
class Following:
    """All links of one gateway's process."""

    name: str
    server: Server
    credentials: CredentialFiles
    routing: Routing
    instance: str = field(factory=lambda: os.urandom(8).hex())
    _link: Link | None = None
    _ended: trio.Event = field(factory=trio.Event)
    _calling: trio.CancelScope = field(factory=trio.CancelScope)

    async def keep(self) -> None:
        """Until cancelled."""
        with self._calling:
            await call_for_ever(self.server, self.credentials, self._talk, _log, ROUTES_LIMIT_BYTES, AGAIN_S)

    async def _talk(self, link: Link) -> None:
        renewal = Renewal(self.credentials, _log)
        welcome = await greet(link, Hello(PROTOCOL, self.name, version("llmgw-core"), self.instance))
        heartbeat_s = welcome.heartbeat_s if isinstance(welcome, Welcome) else HEARTBEAT_S
        _log.info("connected", extra={"server": str(self.server)})
        self._link, self._ended = link, trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(beat, link, heartbeat_s)
                nursery.start_soon(renewal.watch, link)
                nursery.start_soon(self._tell_taken, link)
                await self._hear(link, heartbeat_s, renewal)
        finally:
            self._ended.set()

    async def leave(self) -> None:
        """Say that nobody has to wait for it any more, if it can be said."""
        if self._link is not None:
            with trio.move_on_after(LEAVE_S), suppress(LinkClosed):
                await self._link.say(Leaving())
                await self._ended.wait()
        self._calling.cancel()

    async def _hear(self, link: Link, heartbeat_s: float, renewal: Renewal) -> None:
        while True:
            message = await hear(link, heartbeat_s)
            self.routing.note_heard()
            match message:
                case Routes(table=table):
                    await self.routing.take(table)
                case CertificateRenewed() as answer:
                    if renewal.take(answer):
                        raise LinkClosed("the certificate was renewed, and is used from the next link on")
                case _:
                    pass

    async def _tell_taken(self, link: Link) -> None:
        said = None
        while True:
            said = await self.routing.next_taken(said)
            await link.say(RoutesTaken(*said))

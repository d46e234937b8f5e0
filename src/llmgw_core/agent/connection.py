"""The agent's link: called again for ever, and what is said on it.

Rules, beside those of `net.calling`: a report is kept until it is acknowledged, and said again on the next link; all
shards are said at once, and whenever one changed or an order was heard.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version

import trio
from attrs import define, field

from llmgw_core.agent.facts import Picture
from llmgw_core.agent.runtime import Runtime
from llmgw_core.agent.settings import AgentSettings
from llmgw_core.model.node import NodeFacts
from llmgw_core.model.shard import ShardStatus
from llmgw_core.net.calling import beat, call_for_ever, greet, hear
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.racing import first
from llmgw_core.plan.liveness import HEARTBEAT_S
from llmgw_core.wire.message import (
    PROTOCOL,
    CertificateRenewed,
    CheckEngine,
    EngineChecked,
    Hello,
    Offers,
    Ordered,
    ReadLog,
    Running,
    Welcome,
)
from llmgw_core.wire.session import AgentEnd

TOGETHER_S = 0.05
"""Changes of shards that come within this time are said together."""
_log = logging.getLogger("llmgw.agent")


@define(eq=False)
class Connection:
    """All links of one agent's process."""

    settings: AgentSettings
    picture: Picture
    runtime: Runtime
    check_engine: Callable[[CheckEngine], Awaitable[EngineChecked]]
    renew: Callable[[Link], Awaitable[None]]
    """Asks for a new certificate, if it is time."""
    renewed: Callable[[CertificateRenewed], bool]
    """Keeps the new certificate; whether the link is to be made anew with it."""
    end: AgentEnd = field(factory=AgentEnd)
    instance: str = field(factory=lambda: os.urandom(8).hex())
    _said: NodeFacts | None = None
    _heard: int = 0
    """The number of the last order on this link."""
    _ordered: trio.Event = field(factory=trio.Event)

    async def keep(self) -> None:
        """Connect, talk, and begin again, until cancelled."""
        await call_for_ever(self.settings.server, self.settings.credentials, self._talk, _log)

    async def _talk(self, link: Link) -> None:
        self.end.connect()
        welcome = await greet(link, Hello(PROTOCOL, self.settings.node, version("llmgw-core"), self.instance))
        unacknowledged = self.end.hear(welcome)
        heartbeat_s = welcome.heartbeat_s if isinstance(welcome, Welcome) else HEARTBEAT_S
        _log.info("connected", extra={"server": str(self.settings.server)})
        async with trio.open_nursery() as nursery:
            # The first report is the snapshot, before anything else is said.
            for report in unacknowledged:
                await link.say(report)
            if not unacknowledged:
                await self._say_facts(link, self.picture.facts)
            self._heard = 0
            nursery.start_soon(self._tell_shards, link)
            nursery.start_soon(self._hear, link, heartbeat_s, nursery)
            nursery.start_soon(beat, link, heartbeat_s)
            nursery.start_soon(self._report, link)
            nursery.start_soon(self.renew, link)

    async def _hear(self, link: Link, heartbeat_s: float, nursery: trio.Nursery) -> None:
        while True:
            message = await hear(link, heartbeat_s)
            self.end.hear(message)
            match message:
                case CheckEngine():
                    nursery.start_soon(self._check_engine, link, message)
                case Offers(offers=offers):
                    self.runtime.offer(offers)
                case Ordered(number=number, order=order):
                    self.runtime.order(order)
                    self._heard = number
                    self._ordered.set()
                case ReadLog():
                    nursery.start_soon(self._read_log, link, message)
                case CertificateRenewed():
                    if self.renewed(message):
                        raise LinkClosed("the certificate was renewed, and is used from the next link on")
                case _:
                    pass

    async def _report(self, link: Link) -> None:
        while True:
            await self._say_facts(link, await self.picture.wait_other_than(self._said))

    async def _say_facts(self, link: Link, facts: NodeFacts) -> None:
        self._said = facts  # and not what the picture is once they are on their way
        await link.say(self.end.report(facts))

    async def _tell_shards(self, link: Link) -> None:
        """All of them, at once and whenever one changed or an order was heard."""
        while True:
            self._ordered = trio.Event()
            said = self.runtime.statuses()
            await link.say(Running(self._heard, said))
            await trio.sleep(TOGETHER_S)
            await first(self._ordered.wait, partial(self._other_shards, said))

    async def _other_shards(self, said: tuple[ShardStatus, ...]) -> None:
        await self.runtime.wait_other_than(said)

    async def _read_log(self, link: Link, ask: ReadLog) -> None:
        await link.say(await self.runtime.read_log(ask))

    async def _check_engine(self, link: Link, order: CheckEngine) -> None:
        await link.say(await self.check_engine(order))

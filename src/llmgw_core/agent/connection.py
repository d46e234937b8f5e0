"""The agent's link: called again for ever, and what is said on it.

Rules: nothing delays a heartbeat, which has a task of its own; a link on which nothing is heard for three beats is
given up, however alive TCP thinks it is; a report is kept until it is acknowledged, and said again on the next link;
the certificate is read anew for each link.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

import trio
from attrs import define, field

from llmgw_core.agent.facts import Picture
from llmgw_core.agent.racing import first
from llmgw_core.agent.runtime import Runtime
from llmgw_core.agent.settings import AgentSettings
from llmgw_core.errors import LlmgwError
from llmgw_core.model.shard import ShardStatus
from llmgw_core.net.call import call
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.plan.backoff import delay_s, failures_after
from llmgw_core.plan.liveness import HEARTBEAT_S
from llmgw_core.wire.message import (
    PROTOCOL,
    CertificateRenewed,
    CheckEngine,
    EngineChecked,
    Heartbeat,
    Hello,
    Offers,
    Ordered,
    ReadLog,
    Refused,
    Running,
    Welcome,
)
from llmgw_core.wire.session import AgentEnd

TOGETHER_S = 0.05
"""Changes of shards that come within this time are said together."""

DEAF_BEATS = 3
WELCOME_S = 20.0
"""How long the control plane may take from our Hello to its answer: it stores before it answers."""
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
    connected: bool = False
    _said: object = None
    _heard: int = 0
    """The number of the last order on this link."""
    _ordered: trio.Event = field(factory=trio.Event)

    async def keep(self) -> None:
        """Connect, talk, and begin again, until cancelled."""
        failures = 0
        while True:
            begun = trio.current_time()
            reason = await self._talk_once()
            held = trio.current_time() - begun if self.connected else 0.0
            self.connected = False
            failures = failures_after(failures, held)
            wait = delay_s(failures, random.random())  # noqa: S311 - it spreads calls, it hides nothing
            _log.warning("not connected", extra={"reason": reason, "again_in_s": f"{wait:.1f}"})
            await trio.sleep(wait)

    async def _talk_once(self) -> str:
        """Why it ended."""
        reason = "the link ended"
        try:
            now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by this machine's clock
            async with call(self.settings.server, self.settings.credentials, now) as link:
                await self._talk(link)
        except* (LlmgwError, OSError) as errors:
            reason = _first(errors)
        return reason

    async def _talk(self, link: Link) -> None:
        self.end.connect()
        await link.say(Hello(PROTOCOL, self.settings.node, version("llmgw-core"), self.instance))
        with trio.move_on_after(WELCOME_S) as patience:
            welcome = await link.hear()
        if patience.cancelled_caught:
            raise LinkClosed(f"no answer to our Hello within {WELCOME_S:g} s")
        if isinstance(welcome, Refused):
            raise LinkClosed(welcome.reason)
        unacknowledged = self.end.hear(welcome)
        heartbeat_s = welcome.heartbeat_s if isinstance(welcome, Welcome) else HEARTBEAT_S
        self.connected = True
        _log.info("connected", extra={"server": str(self.settings.server)})
        async with trio.open_nursery() as nursery:
            # The first report is the snapshot, before anything else is said.
            for report in unacknowledged:
                await link.say(report)
            if not unacknowledged:
                await link.say(self.end.report(self.picture.facts))
                self._said = self.picture.facts
            self._heard = 0
            nursery.start_soon(self._tell_shards, link)
            nursery.start_soon(self._hear, link, heartbeat_s, nursery)
            nursery.start_soon(self._beat, link, heartbeat_s)
            nursery.start_soon(self._report, link)
            nursery.start_soon(self.renew, link)

    async def _hear(self, link: Link, heartbeat_s: float, nursery: trio.Nursery) -> None:
        while True:
            with trio.move_on_after(DEAF_BEATS * heartbeat_s) as patience:
                message = await link.hear()
            if patience.cancelled_caught:
                raise LinkClosed(f"nothing was heard for {DEAF_BEATS * heartbeat_s:g} s")
            self.end.hear(message)
            match message:
                case Refused(reason=reason):
                    raise LinkClosed(reason)
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

    async def _beat(self, link: Link, heartbeat_s: float) -> None:
        number = 0
        while True:
            await trio.sleep(heartbeat_s)
            number += 1
            await link.say(Heartbeat(number))

    async def _report(self, link: Link) -> None:
        while True:
            facts = await self.picture.wait_other_than(self._said)  # type: ignore[arg-type]
            self._said = facts
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


def _first(errors: BaseExceptionGroup[BaseException]) -> str:
    inner = errors.exceptions[0]
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return str(inner) or type(inner).__name__

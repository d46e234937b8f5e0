"""What the control plane knows of its nodes right now: the store's rows, and who is connected.

One task at a time changes it (trio switches only where one waits), and what was decided is in the store before anybody
is told. A connection has a number: what a superseded one does afterwards never touches its successor's node.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from itertools import count
from math import inf

import trio
from attrs import define, field

from llmgw_core.control.outbox import Outbox
from llmgw_core.model.identity import Identity
from llmgw_core.model.node import NodeFacts
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.plan.admission import Allowance, Caller
from llmgw_core.plan.liveness import (
    NodeState,
    Pace,
    Sleep,
    find_sleep,
    heartbeat_interval_s,
    is_silent,
    node_state,
    slept_since,
)
from llmgw_core.store.reading import Revocation, StoredNode
from llmgw_core.wire.facts import bounded, parse_facts
from llmgw_core.wire.message import EngineChecked, LogRead, Message

log = logging.getLogger("llmgw.control")


SAY_S = 20.0
"""How long a peer may take to take a message."""


@define(eq=False)
class Check:
    """An engine-check that runs on a node, and all who wait for it."""

    id: int
    engine: str
    done: trio.Event = field(factory=trio.Event)
    answer: EngineChecked | None = None
    """None when it is done: it has come to nothing."""


@define(eq=False)
class Read:
    """A part of a log that was asked for."""

    done: trio.Event = field(factory=trio.Event)
    answer: LogRead | None = None
    """None when it is done: the node has gone."""

    def finish(self, answer: LogRead | None = None) -> None:
        self.answer = answer
        self.done.set()


@define(eq=False)
class Connection:
    """One live link of a peer."""

    number: int
    link: Link
    identity: Identity
    serial: str
    caller: Caller
    scope: trio.CancelScope
    why_closed: str = ""
    since: float = 0.0
    until: float = inf
    """Of its certificate, seconds since 1970."""
    instance: str = ""
    """The peer's process."""
    live: bool = False
    """Whether a node's snapshot is there: commands may be said."""
    checks: dict[str, Check] = field(factory=dict)
    """By engine, what runs on the node."""
    outbox: Outbox = field(factory=Outbox)
    reads: dict[int, Read] = field(factory=dict)
    """Logs that were asked for, and not answered yet."""

    async def say(self, message: Message) -> None:
        """Send; a peer that does not take it in time has ended its link."""
        async with self._in_time():
            await self.link.say(message)

    async def say_text(self, kind: str, text: str) -> None:
        """The same, of a message that has been encoded already."""
        async with self._in_time():
            await self.link.say_text(kind, text)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        with trio.move_on_after(SAY_S) as saying:
            yield
        if saying.cancelled_caught:
            raise LinkClosed(f"{self.identity.name} takes nothing: what was said to it has waited for {SAY_S:g} s")

    def answer(self, message: EngineChecked) -> None:
        for check in self.checks.values():
            if check.id == message.id:
                return self.finish(check, message)
        return None

    def finish(self, check: Check, answer: EngineChecked | None = None) -> None:
        """Whoever waits for it goes on; without an answer it has come to nothing."""
        if self.checks.get(check.engine) is check:
            del self.checks[check.engine]
        check.answer = check.answer or answer
        check.done.set()

    async def end(self, reason: str) -> None:
        """Tell the peer why, and let its task end."""
        self.why_closed = reason
        try:
            await self.link.refuse(reason)
        finally:
            self.scope.cancel()

    async def outlast_end(self) -> None:
        """While `end` is under way, wait for it: the link's reader, which hears the peer's goodbye, is this task's."""
        if self.why_closed:
            await trio.sleep_forever()  # `end` cancels


@define(eq=False)
class Node:
    """One node, as last seen."""

    name: str
    serial: str
    key_fingerprint: str
    until: float
    address: str
    instance: str
    report_number: int
    facts: NodeFacts | None
    first_seen: float
    last_heard: float
    connection: Connection | None = None
    stores: Allowance = field(factory=Allowance)
    """How often its reports may still be stored."""
    announced: NodeState | None = None
    """The state of which the last event told."""


LOOK_EVERY_S = 1.0
"""How often the control plane looks at the clock."""
_SLEEPS = 100


@define(eq=False)
class Fleet:
    """All nodes by name."""

    started: float
    pace: Pace = field(factory=Pace)
    nodes: dict[str, Node] = field(factory=dict)
    revoked: dict[str, Revocation] = field(factory=dict)
    """By serial."""
    barred: Counter[Identity] = field(factory=Counter)
    """Who is being revoked right now: nothing is signed for them, and they are not let in."""
    renewed: dict[Identity, float] = field(factory=dict)
    """When a certificate was last given out over a link."""
    operators: set[Connection] = field(factory=set)
    gateways: set[Connection] = field(factory=set)
    numbers: count[int] = field(factory=lambda: count(1))
    moved: int = 0
    """Callers that came, were let in, or went."""
    sleeps: deque[Sleep] = field(factory=lambda: deque(maxlen=_SLEEPS))
    """The last ones. An older one excuses nobody any more."""
    looked: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.looked = self.started

    def load(self, nodes: Iterable[StoredNode], revocations: Iterable[Revocation]) -> None:
        for stored in nodes:
            facts = _stored_facts(stored)
            self.nodes[stored.name] = Node(
                name=stored.name,
                serial=stored.serial,
                key_fingerprint=stored.key_fingerprint,
                until=stored.until,
                address=stored.address,
                instance=stored.instance,
                report_number=stored.report_number if facts else 0,
                facts=facts,
                first_seen=stored.first_seen,
                last_heard=min(stored.last_seen, self.started),  # the clock may have been set back
            )
        self.revoked = {each.serial: each for each in revocations}

    @property
    def heartbeat_s(self) -> float:
        return heartbeat_interval_s(len(self.nodes), self.pace.heartbeat_s)

    def look(self, now: float) -> Sleep | None:
        """To be called every `LOOK_EVERY_S`; gives the sleep that has just ended, if there was one."""
        sleep = find_sleep(self.looked, now, LOOK_EVERY_S)
        if sleep is not None:
            self.sleeps.append(sleep)
        if now < self.looked:  # the clock was set back, and nobody was heard in the future
            for node in self.nodes.values():
                node.last_heard = min(node.last_heard, now)
        self.looked = now
        return sleep

    def _awake(self, last_heard: float, now: float) -> float:
        """`now`, less what we have slept since then; a sleep that nobody has noticed yet counts too."""
        unnoticed = find_sleep(self.looked, now, LOOK_EVERY_S)
        return now - slept_since(last_heard, self.sleeps) - (unnoticed.seconds if unnoticed else 0.0)

    def silent(self, last_heard: float, now: float) -> bool:
        """Whether a peer that was last heard then has missed its beats."""
        return is_silent(last_heard, self._awake(last_heard, now), self.heartbeat_s)

    def patience_s(self, last_heard: float, now: float) -> float:
        """How much longer the silence of such a peer is borne on its link."""
        return last_heard + self.pace.lost_after_s - self._awake(last_heard, now)

    def state(self, node: Node, now: float) -> NodeState:
        return node_state(
            connected=node.connection is not None,
            last_heard=node.last_heard,
            started=self.started,
            now=self._awake(node.last_heard, now),
            interval_s=self.heartbeat_s,
            lost_after_s=self.pace.lost_after_s,
        )

    def connections(self) -> list[Connection]:
        """Every live link."""
        nodes = (node.connection for node in self.nodes.values() if node.connection)
        return [*nodes, *self.operators, *self.gateways]

    def connections_of(self, serials: Iterable[str], identities: Collection[Identity] = ()) -> list[Connection]:
        """Every live link with one of these certificates, or of one of these."""
        wanted = set(serials)
        return [each for each in self.connections() if each.serial in wanted or each.identity in identities]


def _stored_facts(stored: StoredNode) -> NodeFacts | None:
    """None for what nobody can read, as after a step back to an older release: the node reports again."""
    try:
        return bounded(parse_facts(stored.facts)) if stored.facts else None
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        log.error("stored facts are unreadable and dropped", extra={"node": stored.name, "reason": reason})
        return None

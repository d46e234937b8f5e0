"""A gateway that serves nobody: it calls the control plane, hears its tables, and says that it has taken them.

It lives in a thread of its own, so that a test of real processes can hold it back, leave requests with it, or end it
without a word.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import trio
from attrs import define, field

from llmgw_core.model.identity import Role
from llmgw_core.model.route import Lingering, RouteTable, Target
from llmgw_core.net.call import Server, call
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.testing.cluster import Cluster, wait_until
from llmgw_core.testing.light_agent import issue
from llmgw_core.wire.message import (
    PROTOCOL,
    ROUTES_LIMIT_BYTES,
    Heartbeat,
    Hello,
    Leaving,
    Routes,
    RoutesTaken,
    Welcome,
)

LOOK_EVERY_S = 0.02
END_S = 60.0


@define(eq=False)
class LightGateway:
    name: str
    server: Server
    credentials: CredentialFiles
    takes: bool = True
    """Whether it takes what it hears."""
    lingering: tuple[Lingering, ...] = ()
    """What it says that it still has elsewhere."""
    table: RouteTable | None = None
    """The last one that it has heard."""
    taken: RouteTable | None = None
    tables: list[RouteTable] = field(factory=list)
    """All that it has heard."""
    instance: str = field(factory=lambda: os.urandom(8).hex())
    _leaves: bool = False
    _said: tuple[int, tuple[Lingering, ...]] | None = None
    _thread: threading.Thread | None = None
    _token: trio.lowlevel.TrioToken | None = None
    _scope: trio.CancelScope = field(factory=trio.CancelScope)

    def start(self) -> None:
        self._thread = threading.Thread(target=trio.run, args=(self._live,))
        self._thread.start()

    def leave(self) -> None:
        """As one that is stopped: it says so, and nobody waits for it any more."""
        self._leaves = True
        if self._thread is not None:
            self._thread.join(END_S)
        self.kill()

    def kill(self) -> None:
        """As its process would be: no last word."""
        if self._thread is None:
            return
        wait_until(lambda: self._token is not None or not self._thread_lives(), "the gateway's loop")
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(END_S)

    def _thread_lives(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def targets(self, replica: str) -> list[Target]:
        """Where the table that it has taken leads."""
        models = self.taken.models if self.taken is not None else ()
        return [target for model in models for target in model.targets if target.replica == replica]

    def wait_for_targets(self, replica: str, count: int = 1) -> list[Target]:
        def found() -> list[Target]:
            targets = self.targets(replica)
            return targets if len(targets) == count else []

        targets: list[Target] = wait_until(found, f"{count} targets of {replica}")
        return targets

    async def _live(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            await self._talk()
        except* LinkClosed:
            if not self._leaves:
                raise

    async def _talk(self) -> None:
        now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock
        with self._scope:
            async with call(self.server, self.credentials, now, ROUTES_LIMIT_BYTES) as link:
                await link.say(Hello(PROTOCOL, self.name, "0.1.0", self.instance))
                welcome = await link.hear()
                assert isinstance(welcome, Welcome), welcome
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._hear, link)
                    nursery.start_soon(self._take, link)
                    nursery.start_soon(_beat, link, welcome.heartbeat_s)

    async def _hear(self, link: Link) -> None:
        while True:
            message = await link.hear()
            if isinstance(message, Routes):
                self.table = message.table
                self.tables.append(message.table)

    async def _take(self, link: Link) -> None:
        while not self._leaves:
            table = self.table if self.takes else self.taken
            saying = (table.version, self.lingering) if table is not None else None
            if table is not None and saying is not None and saying != self._said:
                self.taken, self._said = table, saying
                await link.say(RoutesTaken(*saying))
            await trio.sleep(LOOK_EVERY_S)
        await link.say(Leaving())


async def _beat(link: Link, every_s: float) -> None:
    number = 0
    while True:
        number += 1
        await link.say(Heartbeat(number))
        await trio.sleep(every_s)


@contextmanager
def running_gateway(cluster: Cluster, name: str = "edge") -> Iterator[LightGateway]:
    """One that has taken a table of the cluster's control plane."""
    files = issue(cluster.authority, cluster.pki, Role.GATEWAY, name)
    gateway = LightGateway(name, cluster.server, files)
    gateway.start()
    try:
        wait_until(lambda: gateway.taken is not None, "a first table")
        yield gateway
    finally:
        gateway.leave()

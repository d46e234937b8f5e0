"""What the agent says and does on a link, word by word; the link is a pair of channels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import trio
from attrs import define, field

from llmgw_core.agent.connection import TOGETHER_S, Connection
from llmgw_core.agent.facts import Picture
from llmgw_core.agent.settings import AgentFile, AgentSettings, understand
from llmgw_core.model.launch import RunShard, Stage, StopShard
from llmgw_core.model.shard import ShardPhase
from llmgw_core.net.link import Link
from llmgw_core.plan.liveness import HEARTBEAT_S
from llmgw_core.testing.running_node import DEADLINE_S, RunningNode, a_launch, running_node
from llmgw_core.wire.message import (
    CertificateRenewed,
    CheckEngine,
    EngineChecked,
    Heartbeat,
    HeartbeatSeen,
    Hello,
    LogRead,
    Message,
    Ordered,
    ReadLog,
    Report,
    Running,
    Welcome,
)
from llmgw_core.wire.text import decode, encode


@define(eq=False)
class Peer:
    """The control plane's end, and as `say` and `hear` the agent's."""

    said: list[Message] = field(factory=list)
    while_saying: Callable[[Message], None] = lambda _: None
    _wake: trio.Event = field(factory=trio.Event)
    _orders: Any = field(factory=lambda: trio.open_memory_channel[Message](100))

    async def say(self, message: Message) -> None:
        self.said.append(cast(Message, decode(encode(message))))
        self._wake.set()
        self._wake = trio.Event()
        if isinstance(message, Heartbeat):
            self.order(HeartbeatSeen(message.number))
        self.while_saying(message)
        await trio.lowlevel.checkpoint()

    async def hear(self) -> Message:
        return cast(Message, await self._orders[1].receive())

    def order(self, message: Message) -> None:
        self._orders[0].send_nowait(decode(encode(message)))

    async def wait(self, wanted: Callable[[Message], bool]) -> Any:
        with trio.fail_after(DEADLINE_S):
            while not (found := [each for each in self.said if wanted(each)]):
                await self._wake.wait()
        return found[-1]

    def running(self) -> list[Running]:
        return [each for each in self.said if isinstance(each, Running)]


def settings(state: Path) -> AgentSettings:
    server = "https://127.0.0.1:1"
    return understand(AgentFile(node="n0", server=server, certificate="x", key="x", authority="x", state=str(state)))


@asynccontextmanager
async def linked(
    connection: Connection, heartbeat_s: float = HEARTBEAT_S, while_saying: Callable[[Message], None] = lambda _: None
) -> AsyncIterator[Peer]:
    peer = Peer(while_saying=while_saying)
    async with trio.open_nursery() as nursery:
        peer.order(Welcome(1, heartbeat_s))
        nursery.start_soon(connection._talk, cast(Link, peer))
        yield peer
        nursery.cancel_scope.cancel()


async def _no_check(order: CheckEngine) -> EngineChecked:
    return EngineChecked(order.id)


async def _no_renewal(_: Link) -> None:
    await trio.sleep_forever()


def _not_renewed(_: CertificateRenewed) -> bool:
    return False


def connection_of(node: RunningNode, state: Path) -> Connection:
    made = settings(state)
    return Connection(made, Picture(made), node.runtime, _no_check, _no_renewal, _not_renewed)


async def test_after_the_snapshot_it_says_what_runs_and_then_whatever_changes(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path) as node:
        connection = connection_of(node, tmp_path)
        async with linked(connection) as peer:
            await peer.wait(lambda said: isinstance(said, Running))
            assert [type(each) for each in peer.said[:3]] == [Hello, Report, Running]
            assert peer.running() == [Running(0, ())]
            peer.order(Ordered(1, RunShard(launch, 0, Stage.PREPARE)))
            heard = await peer.wait(lambda said: isinstance(said, Running) and said.heard == 1)
            assert [each.replica for each in heard.shards] == [launch.replica]
            peer.order(Ordered(2, RunShard(launch, 0, Stage.RUN)))

            def is_ready(said: Message) -> bool:
                return isinstance(said, Running) and [each.phase for each in said.shards] == [ShardPhase.READY]

            assert (await peer.wait(is_ready)).heard == 2
        async with linked(connection) as again:
            await again.wait(lambda said: isinstance(said, Running))
            assert again.running()[0].heard == 0
            assert [each.phase for each in again.running()[0].shards] == [ShardPhase.READY]
            again.order(ReadLog(9, launch.replica, 0, lines=1))
            log = await again.wait(lambda said: isinstance(said, LogRead))
            assert (log.id, log.text.count("\n")) == (9, 1)
            again.order(Ordered(1, StopShard(launch.replica, 1, 0)))
            await again.wait(lambda said: said == Running(1, ()))


async def test_an_order_that_changes_nothing_is_answered_too(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, linked(connection_of(node, tmp_path)) as peer:
        for number in (1, 2, 3):
            peer.order(Ordered(number, StopShard("none/1", 1, 0)))
            await peer.wait(lambda said, number=number: said == Running(number, ()))  # type: ignore[misc]


async def test_many_changes_at_once_are_said_together_and_delay_no_heartbeat(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, linked(connection_of(node, tmp_path), 2.0) as peer:
        begun = trio.current_time()
        for number in range(1, 41):
            launch = a_launch("--no-such", model=f"m{number}")
            peer.order(Ordered(number, RunShard(launch, 0, Stage.PREPARE)))
        await peer.wait(lambda s: isinstance(s, Running) and {e.phase for e in s.shards} == {ShardPhase.FAILED})
        assert len(peer.running()) <= 2 + (trio.current_time() - begun) / TOGETHER_S
        assert len(peer.running()[-1].shards) == 40
        peer.said.clear()
        await peer.wait(lambda said: isinstance(said, Heartbeat))


async def test_what_changes_while_the_snapshot_is_on_its_way_is_reported_too(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        connection = connection_of(node, tmp_path)

        def change(said: Message) -> None:
            if isinstance(said, Report):
                connection.picture.change(disk_free_mib=1024)

        async with linked(connection, while_saying=change) as peer:
            await peer.wait(lambda said: isinstance(said, Report) and said.facts.disk_free_mib == 1024)

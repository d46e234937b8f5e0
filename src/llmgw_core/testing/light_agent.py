"""Agents without a node: the real call, wire and numbering of reports, many to a process. For load and for bad days.

A light agent says what it is told to say, once, and lets its test see what came back; it never calls again by itself.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import trio
from attrs import define, evolve, field

from llmgw_core.model.identity import Identity, Role
from llmgw_core.model.node import EngineFound, Fabric, Found, Gpu, GpuReport, IbPort, IbReport, NodeFacts
from llmgw_core.model.replica import Hca
from llmgw_core.net.call import Server, call
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.pki.authority import Authority
from llmgw_core.pki.certificate import Order
from llmgw_core.pki.delivery import Delivery, write_delivery
from llmgw_core.pki.names import parse_names
from llmgw_core.wire.message import PROTOCOL, Acknowledged, Heartbeat, HeartbeatSeen, Hello, Message, Refused, Unknown
from llmgw_core.wire.session import AgentEnd

ANSWER_S = 60.0
"""Only a test that fails takes so long."""


def node_name(number: int) -> str:
    return f"node-{number:04}"


def facts_of_a_node(number: int, gpus: int = 8) -> NodeFacts:
    """As large as those of a real node: eight GPUs, eight ports, a fabric, the engines."""
    card = Gpu(0, None, "NVIDIA H100 80GB HBM3", 81559, 612, 0, 31, "570.124.06", mig=False)
    cards = (
        evolve(card, index=index, uuid=f"GPU-{number:08x}-5d1a-4c0e-9b6f-{index:012x}", bus_id=f"00000000:{index:02X}")
        for index in range(gpus)
    )
    ports = (
        IbPort(
            Hca(f"mlx5_{index}"),
            "ACTIVE",
            "LinkUp",
            "InfiniBand",
            "400 Gb/sec (4X NDR)",
            lid=8 * number + index + 1,
            node_guid=f"b83f:d203:{number:04x}:{index:04x}",
            port_guid=f"b83f:d203:{number:04x}:{index:04x}",
            subnet_prefix="fe80:0000:0000:0000",
        )
        for index in range(8)
    )
    engines = (
        EngineFound(name, f"/opt/{name}/bin/{name}", "0.11.0", f"{number % 3:064x}", "accepted")
        for name in ("vllm", "sglang", "llamacpp")
    )
    return NodeFacts(
        agent_version="0.1.0",
        gpus=GpuReport(Found.SOME, tuple(cards)),
        infiniband=IbReport(Found.SOME, tuple(ports)),
        fabrics=(Fabric("ib-a", (Hca("mlx5_0"), Hca("mlx5_1")), picked=True),),
        engines=tuple(engines),
        machine_id=f"{number:032x}",
        disk_free_mib=1_740_800,
    )


def issue(authority: Authority, directory: Path, role: Role, name: str, ips: Iterable[str] = ()) -> CredentialFiles:
    """A certificate, as `llmgw ca issue` makes it, and its files."""
    order = Order(Identity(role, name), parse_names((), ips))
    delivery = Delivery(directory, name)
    issued = authority.issue(order, datetime.now(UTC))  # noqa: TID251 - certificates are judged by the real clock
    write_delivery(delivery, authority, issued)
    return CredentialFiles(delivery.certificate, delivery.key, delivery.authority)


@define(eq=False)
class LightAgent:
    """One node's agent over all its links; `talk` is one link."""

    name: str
    server: Server
    credentials: CredentialFiles
    facts: NodeFacts
    end: AgentEnd = field(factory=AgentEnd)
    instance: str = field(factory=lambda: os.urandom(8).hex())
    acknowledged: int = 0
    """The highest report of which the control plane said that it is stored."""
    beats: int = 0

    @asynccontextmanager
    async def talk(self) -> AsyncIterator[Link]:
        """A link on which the snapshot is acknowledged."""
        now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock
        self.end.connect()
        async with call(self.server, self.credentials, now) as link:
            await link.say(Hello(PROTOCOL, self.name, "0.1.0", self.instance))
            for report in self.end.hear(await self._hear(link)) or (self.end.report(self.facts),):
                await link.say(report)
                await self.hear_until(link, Acknowledged(report.number))
            yield link

    async def report(self, link: Link, facts: NodeFacts) -> int:
        """Say what the node is like now, and wait until that is stored. Its number."""
        report = self.end.report(facts)
        self.facts = facts
        await link.say(report)
        await self.hear_until(link, Acknowledged(report.number))
        return report.number

    async def beat(self, link: Link) -> float:
        """Say one heartbeat; the seconds until it was answered."""
        self.beats += 1
        begun = trio.current_time()
        await link.say(Heartbeat(self.beats))
        await self.hear_until(link, HeartbeatSeen(self.beats))
        return trio.current_time() - begun

    async def hear_until(self, link: Link, wanted: Message) -> None:
        """Hear what comes, up to `wanted`; raises `LinkClosed` where it does not come."""
        while await self._hear(link) != wanted:
            pass

    async def _hear(self, link: Link) -> Message | Unknown:
        with trio.move_on_after(ANSWER_S) as patience:
            message = await link.hear()
        if patience.cancelled_caught:
            raise LinkClosed(f"{self.name}: no answer within {ANSWER_S:g} s")
        if isinstance(message, Refused):
            raise LinkClosed(message.reason)
        if isinstance(message, Acknowledged):
            self.acknowledged = max(self.acknowledged, message.number)
            self.end.hear(message)
        return message

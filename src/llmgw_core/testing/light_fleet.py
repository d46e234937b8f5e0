"""Agents and gateways of a whole fleet as plain values, for the planner's laws: no process, no clock, no link.

They do what agents promise: orders in the order in which they were said, old generations ignored, the latest order
wins, a stopped shard stays in the list until nothing of it is left, and a failure is told at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from attrs import define, evolve, field

from llmgw_core.model.deployment import Assignment
from llmgw_core.model.drain import Drain, Rollout
from llmgw_core.model.launch import Order, RunShard, Stage, StopShard
from llmgw_core.model.node import NodeFacts
from llmgw_core.model.shard import ShardFailure, ShardPhase, ShardStatus
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.route import attempts_of
from llmgw_core.plan.world import Attempt, Decision, ObservedGateway, ObservedNode, World

_Key = tuple[str, int, int]


@define
class LightNode:
    """One machine with its agent, and the link to it."""

    name: str
    facts: NodeFacts
    shards: dict[_Key, ShardStatus] = field(factory=dict)
    runs: dict[_Key, RunShard] = field(factory=dict)
    """How far each is to go."""
    highest: dict[str, int] = field(factory=dict)
    """By replica; kept over everything, like the agent's disk."""
    linked: bool = True
    last_heard: float = 0.0
    orders: deque[Order] = field(factory=deque)
    """Said, and not heard yet."""
    said: dict[_Key, Order] = field(factory=dict)
    """The last on this link, by shard."""
    refuses: set[str] = field(factory=set)
    """Keys of offers whose command its engine refuses, though it had accepted them."""

    def observed(self, now: float, lost_after_s: float) -> ObservedNode:
        silent = now - self.last_heard
        state = NodeState.ONLINE if self.linked else NodeState.LOST if silent > lost_after_s else NodeState.SUSPECT
        return ObservedNode(
            self.name,
            state,
            self.facts,
            tuple(self.shards.values()) if self.linked else None,
            self.linked and not self.orders,
            self.last_heard,
        )

    def tell(self, order: Order) -> None:
        key = _key_of(order)
        if self.linked and self.said.get(key) != order:
            self.said[key] = order
            self.orders.append(order)

    def hear_one(self) -> None:
        if self.linked and self.orders:
            self._hear(self.orders.popleft())

    def _hear(self, order: Order) -> None:
        key = _key_of(order)
        if isinstance(order, StopShard):
            self._stop(key)
            return
        launch = order.launch
        if key not in self.shards and launch.generation < self.highest.get(launch.replica, 0):
            return
        self.highest[launch.replica] = max(launch.generation, self.highest.get(launch.replica, 0))
        self.runs[key] = order
        if key not in self.shards:
            place = launch.places[order.rank]
            engine = self.facts.engines[0] if self.facts.engines else None
            self.shards[key] = ShardStatus(
                launch.replica,
                launch.generation,
                order.rank,
                ShardPhase.PREPARING,
                gpus=place.gpus,
                port=place.port,
                help_digest=engine.help_digest if engine else None,
            )

    def _stop(self, key: _Key) -> None:
        self.runs.pop(key, None)
        status = self.shards.get(key)
        if status is None:
            return
        if status.phase.holds_gpus:
            self.shards[key] = evolve(status, phase=ShardPhase.STOPPING)
        else:
            del self.shards[key]

    def fail(self, key: _Key, kind: str, now: float) -> None:
        status = self.shards[key]
        if status.failure is None and status.phase is not ShardPhase.STOPPING:
            phase = ShardPhase.STOPPING if status.phase.holds_gpus else ShardPhase.FAILED
            self.shards[key] = evolve(status, phase=phase, failure=ShardFailure(kind, kind, at=now))

    def work(self, key: _Key) -> None:
        """One shard goes one step on."""
        status = self.shards[key]
        run = self.runs.get(key)
        if status.phase is ShardPhase.STOPPING:
            if status.failure is not None and run is not None:
                self.shards[key] = evolve(status, phase=ShardPhase.FAILED)
            else:
                del self.shards[key]
        elif status.phase is ShardPhase.PREPARING and run is not None:
            if run.launch.offer.key in self.refuses:
                self.fail(key, "bad arguments", 0.0)
            else:
                self.shards[key] = evolve(status, phase=ShardPhase.PREPARED)
        elif status.phase is ShardPhase.PREPARED and run is not None and run.stage is Stage.RUN:
            self.shards[key] = evolve(status, phase=ShardPhase.STARTING)
        elif status.phase in (ShardPhase.STARTING, ShardPhase.UNREADY):
            self.shards[key] = evolve(status, phase=ShardPhase.READY)


@define
class LightGateway:
    """One gateway, and the link to it."""

    name: str
    routes: frozenset[Attempt]
    """Where it really sends requests."""
    told: frozenset[Attempt] | None = None
    """By the table that it has not taken yet."""
    taken: frozenset[Attempt] | None = None
    """As the control plane knows."""
    lingering: dict[Attempt, int] = field(factory=dict)
    linked: bool = True
    last_heard: float = 0.0
    behind_since: float | None = None
    slow: bool = False
    """Whether it takes tables only when a test lets it."""

    def silent_since(self) -> float | None:
        return self.behind_since if self.linked else self.last_heard

    def observed(self) -> ObservedGateway:
        return ObservedGateway(self.name, self.taken, self.lingering, self.silent_since())

    def tell(self, routes: frozenset[Attempt], now: float) -> None:
        if self.linked and routes != (self.taken if self.told is None else self.told):
            self.told = routes
            self.behind_since = now if self.behind_since is None else self.behind_since

    def take(self) -> None:
        """New requests go by the last table only; each attempt that it leads to no more has some left."""
        if self.linked and self.told is not None:
            self.lingering = {each: count for each, count in self.lingering.items() if each not in self.told}
            self.lingering |= dict.fromkeys(self.routes - self.told, 1)
            self.routes = self.taken = self.told
            self.told = self.behind_since = None

    def finish(self) -> None:
        """All requests that were left have ended."""
        if self.linked:
            self.lingering = {}

    def can_be_heard(self, now: float, patience_s: float) -> bool:
        silent = self.silent_since()
        return silent is None or now < silent + patience_s


@define(repr=False)
class LightFleet:
    """The nodes, and a world around them."""

    world: World
    nodes: dict[str, LightNode]
    gateways: dict[str, LightGateway] = field(factory=dict)
    _routes: frozenset[Attempt] = frozenset()
    """Of the latest table."""

    def __repr__(self) -> str:
        """Short, since it is printed when a law is broken."""
        models = self.world.catalog.models if self.world.catalog is not None else {}
        wants = [
            f"{self.world.wanted.get(name)} {name} ({', '.join(model.profiles)})" for name, model in models.items()
        ]
        return f"{'; '.join(map(_outline, self.nodes.values()))} | {'; '.join(wants)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis prints."""
        printer.text(repr(self))

    def look(self) -> World:
        """As the control plane sees it now."""
        now = self.world.now
        for node in self.nodes.values():
            if node.linked:
                node.last_heard = now
        seen = {
            name: evolve(node.observed(now, self.world.lost_after_s), draining=name in self.world.drains)
            for name, node in self.nodes.items()
        }
        for name, gateway in tuple(self.gateways.items()):
            if gateway.linked:
                gateway.last_heard = now
            elif now > gateway.last_heard + self.world.lost_after_s + 10.0:
                del self.gateways[name]  # nobody waits for it any more
        gateways = tuple(each.observed() for each in self.gateways.values())
        self.world = evolve(self.world, nodes=seen, gateways=gateways)
        return self.world

    def carry_out(self, decision: Decision) -> None:
        records = {**self.world.records, **{record.id: record for record in decision.records}}
        self.world = evolve(self.world, records=records)
        for each in decision.orders:
            self.nodes[each.node].tell(each.order)
        self._routes = attempts_of(decision.routes)
        for gateway in self.gateways.values():
            gateway.tell(self._routes, self.world.now)

    def drain(self, name: str, **terms: Any) -> None:
        drain = Drain(name, "an operator", self.world.now, **terms)
        self.world = evolve(self.world, drains={**self.world.drains, name: drain})

    def undrain(self, name: str) -> None:
        self.world = evolve(self.world, drains={node: d for node, d in self.world.drains.items() if node != name})

    def ask_again(self, model: str, stop_first: bool = False) -> None:
        rollout = Rollout(model, self.world.now, stop_first)
        self.world = evolve(self.world, rollouts={**self.world.rollouts, model: rollout})

    def is_up(self, assignment: Assignment) -> bool:
        """Whether every shard of it really is ready, whoever knows."""
        launch = assignment.launch
        for rank, place in enumerate(launch.places):
            status = self.nodes[place.node].shards.get((launch.replica, launch.generation, rank))
            if status is None or status.phase is not ShardPhase.READY:
                return False
        return True

    def pass_time(self, seconds: float) -> None:
        self.world = evolve(self.world, now=self.world.now + seconds)

    def cut(self, name: str) -> None:
        node = self.nodes[name]
        node.linked = False
        node.orders.clear()
        node.said.clear()

    def heal(self, name: str) -> None:
        self.nodes[name].linked = True

    def reboot(self, name: str) -> None:
        """Nothing that ran is left; its link is a new one."""
        node = self.nodes[name]
        node.shards.clear()
        node.runs.clear()
        node.orders.clear()
        node.said.clear()

    def connect_gateway(self, name: str, slow: bool = False) -> LightGateway:
        """One that comes, or comes again. A new one goes by the table that it has kept, which may be any."""
        known = self.gateways.get(name)
        gateway = known or LightGateway(name, self._routes)
        gateway.linked, gateway.slow, gateway.last_heard = True, slow, self.world.now
        gateway.told = None
        gateway.behind_since = None
        self.gateways[name] = gateway
        gateway.tell(self._routes, self.world.now)
        if gateway.taken is None and gateway.told is None:
            gateway.told, gateway.behind_since = self._routes, self.world.now
        return gateway

    def cut_gateway(self, name: str) -> None:
        """It goes on by the table that it has, and nobody hears of it."""
        if name in self.gateways:
            self.gateways[name].linked = False

    def work_all(self) -> None:
        """Every agent hears all and goes one step on with every shard; so do gateways that are not slow."""
        for gateway in self.gateways.values():
            if not gateway.slow:
                gateway.finish()
                gateway.take()
        for node in self.nodes.values():
            while node.linked and node.orders:
                node.hear_one()
            for key in list(node.shards):
                node.work(key)


def _key_of(order: Order) -> _Key:
    if isinstance(order, StopShard):
        return order.replica, order.generation, order.rank
    return order.launch.replica, order.launch.generation, order.rank


def _outline(node: LightNode) -> str:
    fabrics = "+".join(fabric.name for fabric in node.facts.fabrics)
    versions = "+".join(each.version or "?" for each in node.facts.engines)
    answers = " ".join(
        f"{each.key[:4]}{'!' if each.refusal or each.weights else ''}{'w' if each.workers_first else ''}"
        f"{'h' if each.head_first else ''}"
        for each in node.facts.offers
    )
    return f"{node.name}: {len(node.facts.gpus.gpus)} GPUs, {fabrics or 'no fabric'}, {versions}, {answers}"


def fleet_of(world: World) -> LightFleet:
    nodes = {
        name: LightNode(name, node.facts, last_heard=world.now)
        for name, node in world.nodes.items()
        if node.facts is not None
    }
    return LightFleet(world, nodes)

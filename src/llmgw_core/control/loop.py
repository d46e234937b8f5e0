"""The one task that plans: looks at everything, decides, stores what was decided, and only then tells the nodes.

Rules: a pass is woken by any change, or by the time that the last one named; what cannot be stored is not done, and
tried again; a node that takes nothing keeps no other waiting; without a catalog (its store may have been lost) nothing
that runs is touched, and gateways go on by what they have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import inf

import attrs
import trio

from llmgw_core.control.fleet import Connection
from llmgw_core.control.observing import observe
from llmgw_core.control.plane import Plane, log
from llmgw_core.errors import LlmgwError
from llmgw_core.model.launch import Order
from llmgw_core.net.link import LinkClosed
from llmgw_core.plan.drain import DrainState, DrainStatus, drain_status
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.world import Decision, World
from llmgw_core.store.change import Change, ReplicaChanged
from llmgw_core.wire.message import Offers
from llmgw_core.wire.record import render_record

GATHER_S = 0.02
"""What changes within this time is planned for in one pass."""
RETRY_S = 1.0
"""After a pass whose decision could not be stored."""


async def plan_for_ever(plane: Plane) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            look_at = await _plan_once(plane, nursery)
            with trio.move_on_after(max(0.0, look_at - plane.now())):
                await plane.deployment.wait_for_bell()
            await trio.sleep(GATHER_S)


async def _plan_once(plane: Plane, nursery: trio.Nursery) -> float:
    """When to look again at the latest, seconds since 1970."""
    desired, world = plane.deployment.desired, observe(plane)
    # In a thread: a pass over a large fleet takes its time, and the heartbeats do not wait for it.
    decision = await trio.to_thread.run_sync(reconcile, world)
    if plane.deployment.desired != desired:
        return plane.now()
    try:
        await _remember(plane, world, decision)
    except LlmgwError as error:
        log.error("not stored, and so not done", extra={"reason": str(error)})
        return plane.now() + RETRY_S
    plane.deployment.decided = desired
    if world.catalog is not None:  # of this world: a first one that was applied meanwhile has no routes yet
        plane.routes.publish(decision.routes, plane.deployment.created)
    _tell(plane, decision, nursery)
    return inf if decision.look_again_at is None else decision.look_again_at


async def _remember(plane: Plane, world: World, decision: Decision) -> None:
    changes: list[Change] = [ReplicaChanged(record.id, render_record(record)) for record in decision.records]
    changes += [plane.event(each.kind, each.node, each.reason) for each in decision.happenings]
    changes += [
        plane.event("mass loss", "", reason)
        for reason in decision.guarded
        if reason not in plane.deployment.decision.guarded
    ]
    statuses = _drain_statuses(plane, world, decision)
    changes += _drain_news(plane, statuses)
    if changes:
        await plane.writer.write(*changes)
    plane.deployment.drain_states = {name: each.state for name, each in statuses.items()}
    plane.deployment.records.update({record.id: record for record in decision.records})
    plane.deployment.decision = decision


def _drain_statuses(plane: Plane, world: World, decision: Decision) -> dict[str, DrainStatus]:
    if not world.drains:
        return {}
    after = attrs.evolve(world, records={**world.records, **{record.id: record for record in decision.records}})
    return {node: drain_status(node, after, decision.blocked) for node in world.drains}


def _drain_news(plane: Plane, statuses: Mapping[str, DrainStatus]) -> list[Change]:
    """A drain that has ended, or cannot go on, is worth an event; one that begins was told of when it was asked for."""
    return [
        plane.event(f"node {status.state.value}", name, _tell_left(status))
        for name, status in statuses.items()
        if status.state is not plane.deployment.drain_states.get(name, DrainState.DRAINING)
    ]


def _tell_left(status: DrainStatus) -> str:
    return "; ".join(map(": ".join, status.left.items())) or "nothing is placed there, and nothing runs"


def _tell(plane: Plane, decision: Decision, nursery: trio.Nursery) -> None:
    orders: dict[str, list[Order]] = defaultdict(list)
    for each in decision.orders:
        orders[each.node].append(each.order)
    offers = plane.deployment.offers
    message = Offers(tuple(offers.values()))
    for node in plane.fleet.nodes.values():
        connection = node.connection
        if connection is not None and connection.live:
            connection.outbox.tell_offers(offers, message)
            connection.outbox.order(orders.get(node.name, ()))
            _start_saying(connection, nursery)


def _start_saying(connection: Connection, nursery: trio.Nursery) -> None:
    if connection.outbox.waiting and not connection.outbox.sending:
        connection.outbox.sending = True
        nursery.start_soon(_say, connection)


async def _say(connection: Connection) -> None:
    """All that waits for one node, in order. A link that ends is its reader's to notice."""
    try:
        while connection.outbox.waiting:
            for message in connection.outbox.take():
                await connection.say(message)
    except LinkClosed as error:
        log.info("orders not said", extra={"node": connection.identity.name, "reason": str(error)})
    finally:
        connection.outbox.sending = False

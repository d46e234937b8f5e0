"""Tells of nodes that fall silent and come back: an event each time a node's state changes.

Rules: what the control plane has slept itself is told too, and is nobody's silence.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version

import trio

from llmgw_core.control.fleet import LOOK_EVERY_S, Connection, Fleet
from llmgw_core.control.keys import KeyWatch
from llmgw_core.control.plane import Plane, log
from llmgw_core.errors import LlmgwError
from llmgw_core.pki.identity import way_to_renew
from llmgw_core.pki.validity import describe_time
from llmgw_core.plan.liveness import NodeState
from llmgw_core.store.change import Change, GatewayForgotten, NodeLastSeen

KEEP_EVERY_S = 30.0
"""How often the times of the last heartbeats go to the disk; they stay in memory otherwise."""


async def watch_nodes(plane: Plane) -> None:
    await _store(plane, [plane.event("control plane started", "", f"release {version('llmgw-core')}")])
    kept, keys = plane.now(), KeyWatch()
    while True:
        keys.look(plane)
        await trio.sleep(LOOK_EVERY_S)
        changes = _changed_states(plane)
        changes += [GatewayForgotten(*who) for who in plane.routes.forget_silent(plane.fleet.pace.lost_after_s)]
        if plane.now() - kept >= KEEP_EVERY_S:
            kept = plane.now()
            changes += [
                NodeLastSeen(node.name, node.last_heard) for node in plane.fleet.nodes.values() if node.connection
            ]
        if changes:
            plane.deployment.look_again()
            await _store(plane, changes)


async def watch_clock(plane: Plane) -> None:
    """A task of its own: a slow disk is no sleep."""
    while True:
        await trio.sleep(LOOK_EVERY_S)
        sleep = plane.fleet.look(plane.now())
        if sleep is not None:
            told = f"for {sleep.seconds:.0f} s, or its clock was set forward; silence in that time is nobody's fault"
            await _store(plane, [plane.event("control plane slept", "", told)])


async def watch_certificates(plane: Plane) -> None:
    """A link ends with its certificate."""
    async with trio.open_nursery() as nursery:
        while True:
            await trio.sleep(LOOK_EVERY_S)
            for connection in expired(plane.fleet, plane.now()):
                who, end = connection.identity, datetime.fromtimestamp(connection.until, UTC)
                told = f"its certificate expired on {describe_time(end)}; {way_to_renew(who)}"
                reason = f"{who.role.value} {who.name} refused: {told}"
                log.warning("refused", extra={"node": who.name, "reason": reason})
                nursery.start_soon(connection.end, reason)


def expired(fleet: Fleet, now: float) -> list[Connection]:
    """The links whose certificates have ended, and that nobody is closing yet. Its last second still counts."""
    return [each for each in fleet.connections() if now >= each.until + 1 and not each.why_closed]


async def _store(plane: Plane, changes: list[Change]) -> None:
    try:
        await plane.writer.write(*changes)
    except LlmgwError as error:
        log.error("not stored", extra={"reason": str(error)})


def _changed_states(plane: Plane) -> list[Change]:
    now = plane.now()
    changes: list[Change] = []
    for node in plane.fleet.nodes.values():
        state = plane.fleet.state(node, now)
        if state is node.announced:
            continue
        first = node.announced is None
        node.announced = state
        if state is not NodeState.WAITING and not first:
            changes.append(
                plane.event(f"node {state.value}", node.name, f"last heard {now - node.last_heard:.0f} s ago")
            )
    return changes

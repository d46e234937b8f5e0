"""An agent's link, from its Hello to its end.

Rules: a report is acknowledged when it is on the disk, and not before; commands are said only after the snapshot; what
a superseded connection does at its end never touches the newer one's node.
"""

from __future__ import annotations

from math import inf

import trio

from llmgw_core.control.fleet import Connection, Fleet, Node
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.renewal import renew_certificate
from llmgw_core.control.visit import Visit
from llmgw_core.errors import LlmgwError
from llmgw_core.model.node import NOT_LOOKED_YET, EngineFound, NodeFacts
from llmgw_core.net.link import LinkClosed, TooLarge
from llmgw_core.plan.admission import Admitted, Allowance, Caller, NotAdmitted, admit
from llmgw_core.plan.liveness import NodeState
from llmgw_core.store.change import Change, NodeConnected, NodeReported
from llmgw_core.wire.facts import bounded, bounded_shards, render_facts
from llmgw_core.wire.message import (
    Acknowledged,
    EngineChecked,
    Heartbeat,
    HeartbeatSeen,
    LogRead,
    Message,
    Refused,
    RenewCertificate,
    Report,
    Running,
    Unknown,
)
from llmgw_core.wire.session import ControlEnd


class NotLetIn(LlmgwError):
    """A node with a good certificate that may not come in now."""


async def serve_agent(plane: Plane, visit: Visit) -> None:
    """Until the link ends, for whatever reason."""
    node = plane.fleet.nodes.get(visit.identity.name)
    end = ControlEnd(lambda hello: node.report_number if node and node.instance == hello.instance else 0)
    answer = end.greet(visit.hello, plane.fleet.heartbeat_s)
    if isinstance(answer, Refused):
        raise NotLetIn(answer.reason)
    with trio.CancelScope() as scope:
        node, connection = await _let_in(plane, visit, scope)
        try:
            await connection.say(answer)
            await _converse(plane, node, connection, end)
        except LlmgwError as error:
            await connection.outlast_end()
            connection.why_closed = str(error)
            if isinstance(error, TooLarge) or not isinstance(error, LinkClosed):
                raise
        finally:
            with trio.CancelScope(shield=True):
                await _see_off(plane, node, connection)


async def _let_in(plane: Plane, visit: Visit, scope: trio.CancelScope) -> tuple[Node, Connection]:
    fleet, name = plane.fleet, visit.identity.name
    fleet.moved += 1
    caller = Caller(name, visit.key, visit.address, visit.hello.instance)
    node = fleet.nodes.get(name)
    older = node.connection if node else None
    decided = admit(
        caller,
        node.key_fingerprint if node else None,
        older.caller if older else None,
        silent=node is not None and fleet.silent(node.last_heard, plane.now()),
    )
    if isinstance(decided, NotAdmitted):
        raise NotLetIn(decided.reason)
    connection = Connection(
        number=next(fleet.numbers),
        link=visit.link,
        identity=visit.identity,
        serial=visit.serial,
        caller=caller,
        scope=scope,
        since=visit.since,
        until=visit.until,
    )
    placed = _place(fleet, visit, connection, plane.now())
    try:
        await plane.writer.write(*_changes_at_entry(plane, visit, decided))
    except BaseException:  # cancelled, too: a revocation may come in this moment
        _put_back(fleet, connection, node)
        raise
    finally:
        if decided.replaces and older is not None:
            # Whoever reads the log sees both addresses (F12).
            here, there = older.caller.address, visit.address
            await older.end(f"node {name}: the connection from {here} is replaced by a newer one from {there}")
    return placed, connection


def _place(fleet: Fleet, visit: Visit, connection: Connection, now: float) -> Node:
    """The node has this connection from now on; its facts and, for the same instance, its numbering stay."""
    old = fleet.nodes.get(visit.identity.name)
    same_instance = old is not None and old.instance == visit.hello.instance
    placed = fleet.nodes[visit.identity.name] = Node(
        name=visit.identity.name,
        serial=visit.serial,
        key_fingerprint=visit.key,
        until=visit.until,
        address=visit.address,
        instance=visit.hello.instance,
        report_number=old.report_number if old and same_instance else 0,
        facts=old.facts if old else None,
        first_seen=old.first_seen if old else now,
        last_heard=now,
        connection=connection,
        stores=old.stores if old else Allowance(),
        announced=NodeState.ONLINE,
    )
    return placed


def _put_back(fleet: Fleet, connection: Connection, node: Node | None) -> None:
    """As it was before `_place`, unless yet another connection has come since."""
    name = connection.identity.name
    if fleet.nodes[name].connection is not connection:
        return
    if node is None:
        del fleet.nodes[name]
    else:
        fleet.nodes[name] = node


def _changes_at_entry(plane: Plane, visit: Visit, decided: Admitted) -> list[Change]:
    name = visit.identity.name
    connected = NodeConnected(
        name=name,
        role=visit.identity.role.value,
        serial=visit.serial,
        key_fingerprint=visit.key,
        until=visit.until,
        address=visit.address,
        instance=visit.hello.instance,
        now=plane.now(),
    )
    changes: list[Change] = [connected, plane.event("node connected", name, f"from {visit.address}")]
    return [*changes, plane.event("node has a new key", name, decided.note)] if decided.note else changes


async def _converse(plane: Plane, node: Node, connection: Connection, end: ControlEnd) -> None:
    """Hear the agent until it is silent for too long. Of the reports that come too fast, the last one is stored."""
    waiting: Report | None = None
    while True:
        message = None
        storing_s = node.stores.wait_s(plane.now()) if waiting else inf
        with trio.move_on_after(max(0.0, min(_patience_s(plane, node), storing_s))):
            message = await connection.link.hear()
        if message is not None:
            waiting = end.hear(message) or waiting
            node.last_heard = plane.now()
            await _answer(plane, node, connection, message)
        elif (
            plane.fleet.patience_s(node.last_heard, plane.now()) <= 0
        ):  # else it was us who slept, or something is to be stored
            await connection.end(f"node {node.name}: nothing was heard for {plane.fleet.pace.lost_after_s:g} s")
            return
        if waiting is not None and node.stores.wait_s(plane.now()) <= 0:
            await _store(plane, node, waiting)
            await _acknowledge(plane, connection, waiting)
            waiting = None
        elif isinstance(message, Report) and waiting is None:
            await _acknowledge(plane, connection, message)  # it is stored already, by an earlier link


def _patience_s(plane: Plane, node: Node) -> float:
    return plane.fleet.patience_s(node.last_heard, plane.now())


async def _acknowledge(plane: Plane, connection: Connection, report: Report) -> None:
    connection.live = True
    plane.deployment.look_again()
    await connection.say(Acknowledged(report.number))


async def _store(plane: Plane, node: Node, report: Report) -> None:
    facts = bounded(report.facts)
    node.stores = node.stores.taken(plane.now())
    stored = NodeReported(node.name, node.instance, report.number, render_facts(facts), plane.now())
    events = [plane.event(kind, node.name, reason) for kind, reason in news_of(node.facts, facts)]
    await plane.writer.write(stored, *events)
    node.facts = facts
    node.report_number = report.number


def news_of(old: NodeFacts | None, new: NodeFacts) -> list[tuple[str, str]]:
    """What of a report is worth an event: its kind and reason."""
    if new.gpus.reason == NOT_LOOKED_YET:
        return []  # an agent that has just started
    if old is None or old.gpus.reason == NOT_LOOKED_YET:
        return [("node reported", f"agent {new.agent_version}, {len(new.gpus.gpus)} GPUs")]
    found = []
    if old.gpus.reason != new.gpus.reason or old.gpus.outcome != new.gpus.outcome:
        found.append(("GPUs changed", new.gpus.reason or f"{len(new.gpus.gpus)} GPUs"))
    if old.fabrics != new.fabrics:
        told = ", ".join(f"{each.name} {each.trouble or 'is fine'}" for each in new.fabrics)
        found.append(("fabrics changed", told or "none"))
    seen = _seen(new)
    if _seen(old) != seen:
        told = ", ".join(" ".join(filter(None, (each.engine, each.version, each.outcome))) for each in seen)
        found.append(("engines changed", told or "none"))
    return found


def _seen(facts: NodeFacts) -> tuple[EngineFound, ...]:
    return tuple(each for each in facts.engines if each.reason != NOT_LOOKED_YET)


async def _answer(plane: Plane, node: Node, connection: Connection, message: Message | Unknown) -> None:
    match message:
        case Heartbeat(number=number):
            await connection.say(HeartbeatSeen(number))
        case EngineChecked():
            connection.answer(message)
        case Running(heard=heard, shards=shards):
            connection.outbox.heard, connection.outbox.shards = heard, bounded_shards(shards)
            plane.deployment.look_again()
        case LogRead(id=id) if id in connection.reads:
            connection.reads.pop(id).finish(message)
        case RenewCertificate(request_pem=request):
            await connection.say(await renew_certificate(plane, connection, request))
        case _:
            pass


async def _see_off(plane: Plane, node: Node, connection: Connection) -> None:
    connection.live = False
    node.connection = None  # also where a newer one has taken its place: `_put_back` may bring this node back
    for check in tuple(connection.checks.values()):
        connection.finish(check)
    for read in connection.reads.values():
        read.finish()
    plane.deployment.look_again()
    why = connection.why_closed or "the connection is gone"
    if plane.fleet.nodes.get(node.name) is not node:
        log.info("superseded connection ended", extra={"node": node.name, "reason": why})
        return
    try:
        await plane.writer.write(plane.event("node disconnected", node.name, why))
    except LlmgwError as error:
        log.error("not stored", extra={"node": node.name, "reason": str(error)})

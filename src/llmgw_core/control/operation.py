"""What an operator can ask and order, by name. Arguments and answers are plain JSON values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from llmgw_core.control.fleet import Connection, Node
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.view import fabric_views, node_view, node_views
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import check_name
from llmgw_core.store.change import NodeRemoved, SerialRevoked, SerialUnrevoked
from llmgw_core.store.database import Database
from llmgw_core.store.reading import Revocation, read_events, read_revocations, read_serials
from llmgw_core.wire.message import CheckEngine

T = TypeVar("T")
Arguments = Mapping[str, Any]
CHECK_S = 620.0
"""How long an engine-check on a node may take: both of its commands, and a little."""


class BadQuestion(LlmgwError):
    """A question that cannot be answered as it was asked."""


def _argument(arguments: Arguments, name: str, kind: type[T], default: T) -> T:
    value = arguments.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise BadQuestion(f"{name}: expected {kind.__name__}, got {value!r}")
    return value


def _node(plane: Plane, arguments: Arguments) -> Node:
    name = _argument(arguments, "node", str, "")
    if name not in plane.fleet.nodes:
        raise BadQuestion(f"no node {name!r} has ever been here; `llmgw ctl nodes` lists those that have")
    return plane.fleet.nodes[name]


async def list_nodes(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    return node_views(plane.fleet, plane.now())


async def show_node(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    return node_view(plane.fleet, _node(plane, arguments), plane.now())


async def list_fabrics(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    return fabric_views(plane.fleet, plane.now())


async def list_events(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    events = read_events(
        plane.database,
        after=_argument(arguments, "after", int, 0),
        node=_argument(arguments, "node", str, ""),
        limit=_argument(arguments, "limit", int, 100),
    )
    return [attrs.asdict(event) for event in events]


async def remove_node(plane: Plane, operator: str, arguments: Arguments) -> None:
    """Forget a node that is not connected."""
    node = _node(plane, arguments)
    if node.connection is not None:
        way = "stop its agent, or revoke its certificate, and remove it then"
        raise BadQuestion(f"{node.name} is connected from {node.address}; {way}")
    # Before the write: a node that comes back while it is written is a new one, and stays.
    del plane.fleet.nodes[node.name]
    try:
        await plane.writer.write(NodeRemoved(node.name), plane.event("node removed", node.name, f"by {operator}"))
    except LlmgwError:
        plane.fleet.nodes.setdefault(node.name, node)
        raise


async def revoke(plane: Plane, operator: str, arguments: Arguments) -> list[str]:
    """Revoke all certificates that were ever shown under a name, or one serial; close their links. The serials."""
    name, serial = _argument(arguments, "name", str, ""), _argument(arguments, "serial", str, "").lower()
    reason = _argument(arguments, "reason", str, "")
    serials = (serial,) if serial else read_serials(plane.database, check_name(name))
    if not serials:
        raise BadQuestion(f"no certificate of {name} was ever shown here; give its serial (`llmgw ca list` has it)")
    now = plane.now()
    changes = [SerialRevoked(each, name, operator, reason, now) for each in serials]
    await plane.writer.write(
        *changes, plane.event("certificate revoked", name, f"by {operator}: {reason or 'no reason'}")
    )
    for each in changes:
        plane.fleet.revoked[each.serial] = Revocation(each.serial, name, now, operator, reason)
    # All at once: one of them may be the link that this was asked on, and one may be dead and slow to close.
    async with trio.open_nursery() as nursery:
        for connection in plane.fleet.connections_of(serials):
            nursery.start_soon(_end_revoked, connection)
    return list(serials)


async def _end_revoked(connection: Connection) -> None:
    who = f"{connection.identity.role.value} {connection.identity.name}"
    reason = f"{who} refused: its certificate, serial {connection.serial}, is revoked"
    keys = {"node": connection.identity.name, "address": connection.caller.address, "reason": reason}
    log.warning("refused", extra=keys)
    await connection.end(reason)


async def unrevoke(plane: Plane, operator: str, arguments: Arguments) -> list[str]:
    """Take back the revocation of one serial, or of all under a name."""
    name, serial = _argument(arguments, "name", str, ""), _argument(arguments, "serial", str, "").lower()
    found = [
        each.serial for each in plane.fleet.revoked.values() if each.serial == serial or (name and each.name == name)
    ]
    if not found:
        raise BadQuestion(f"nothing is revoked under {serial or name!r}; `llmgw ctl cert list` shows what is")
    changes = [SerialUnrevoked(each) for each in found]
    await plane.writer.write(*changes, plane.event("revocation taken back", name, f"by {operator}: {', '.join(found)}"))
    for each in found:
        plane.fleet.revoked.pop(each, None)
    return found


async def list_revocations(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    return [attrs.asdict(each) for each in read_revocations(plane.database)]


async def back_up(plane: Plane, operator: str, arguments: Arguments) -> str:
    """Copy the store to a file on the control plane's machine."""
    target = Path(_argument(arguments, "file", str, ""))
    if not target.is_absolute():
        raise BadQuestion(f"{str(target)!r}: name an absolute path on the control plane's machine")
    await trio.to_thread.run_sync(_copy, plane.database.path, target)
    return str(target)


def _copy(source: Path, target: Path) -> None:
    # A connection of its own: the thread must share none.
    database = Database(source)
    try:
        database.back_up(target)
    finally:
        database.close()


async def check_engine(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """Run an engine-check on a node now; what `engine-check --json` prints there."""
    node = _node(plane, arguments)
    connection = node.connection
    if connection is None:
        raise BadQuestion(f"{node.name} is not connected")
    number = next(plane.fleet.numbers)
    send, receive = trio.open_memory_channel[Any](1)
    connection.answers[number] = send
    await connection.link.say(CheckEngine(number, _argument(arguments, "engine", str, "")))
    try:
        with trio.fail_after(CHECK_S):
            checked = await receive.receive()
    except trio.TooSlowError:
        raise BadQuestion(f"{node.name} has not answered within {CHECK_S:g} s") from None
    except trio.EndOfChannel:
        raise BadQuestion(f"{node.name} has gone while it was checking") from None
    finally:
        connection.answers.pop(number, None)
    if checked.report is None:
        raise BadQuestion(f"{node.name}: {checked.reason}")
    report: dict[str, Any] = checked.report
    return report


OPERATIONS: Mapping[str, Callable[[Plane, str, Arguments], Awaitable[Any]]] = {
    "nodes": list_nodes,
    "node": show_node,
    "fabrics": list_fabrics,
    "events": list_events,
    "remove-node": remove_node,
    "revoke": revoke,
    "unrevoke": unrevoke,
    "revocations": list_revocations,
    "backup": back_up,
    "engine-check": check_engine,
}

"""What an operator can ask and order, by name. Arguments and answers are plain JSON values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from llmgw_core.control.arguments import Arguments, BadQuestion, argument, node_argument
from llmgw_core.control.checking import check_engine
from llmgw_core.control.deploying import apply, plan, scale
from llmgw_core.control.draining import drain, list_drains, plan_drains, roll_back, show_rollout, undrain
from llmgw_core.control.gateway_view import list_gateways
from llmgw_core.control.keys import create_key, list_keys, revoke_key
from llmgw_core.control.log_reading import read_log
from llmgw_core.control.plane import Plane
from llmgw_core.control.replica_view import explain_model, list_models, list_replicas, show_replica
from llmgw_core.control.revocation import list_revocations, revoke, unrevoke
from llmgw_core.control.view import fabric_views, node_view, node_views
from llmgw_core.control.weights_view import show_weights
from llmgw_core.errors import LlmgwError
from llmgw_core.store.change import NodeRemoved
from llmgw_core.store.database import Database
from llmgw_core.store.reading import read_events
from llmgw_core.wire.facts import fitting
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

MOST_EVENTS = 10_000
ANSWER_BYTES = MESSAGE_LIMIT_BYTES // 2


async def list_nodes(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    return node_views(plane.fleet, plane.now(), plane.deployment.draining)


async def show_node(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    return node_view(plane.fleet, node_argument(plane, arguments), plane.now(), plane.deployment.draining)


async def list_fabrics(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    return fabric_views(plane.fleet, plane.now())


async def list_events(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """As many of the asked as one message takes: with `after` the first of them, the last ones without."""
    after = argument(arguments, "after", int, 0)
    node, limit = argument(arguments, "node", str, ""), argument(arguments, "limit", int, 100)
    if limit < 0:
        raise BadQuestion(f"limit: expected a number that is not negative, got {limit}")
    events = read_events(plane.database, after=after, node=node, limit=min(limit, MOST_EVENTS))
    return fitting([attrs.asdict(event) for event in events], ANSWER_BYTES, last=not after)


async def remove_node(plane: Plane, operator: str, arguments: Arguments) -> None:
    """Forget a node that is not connected."""
    node = node_argument(plane, arguments)
    if node.connection is not None:
        way = "stop its agent, or revoke its certificate, and remove it then"
        raise BadQuestion(f"{node.name} is connected from {node.address}; {way}")
    # Before the write: a node that comes back while it is written is a new one, and stays.
    del plane.fleet.nodes[node.name]
    drain = plane.deployment.drains.pop(node.name, None)
    plane.deployment.look_again()
    try:
        await plane.writer.write(NodeRemoved(node.name), plane.event("node removed", node.name, f"by {operator}"))
    except LlmgwError:
        plane.fleet.nodes.setdefault(node.name, node)
        if drain is not None:
            plane.deployment.drains[node.name] = drain
        raise


async def back_up(plane: Plane, operator: str, arguments: Arguments) -> str:
    """Copy the store to a file on the control plane's machine."""
    target = Path(argument(arguments, "file", str, ""))
    if not target.is_absolute():
        raise BadQuestion(f"{str(target)[:200]!r}: name an absolute path on the control plane's machine")
    await trio.to_thread.run_sync(_copy, plane.database.path, target)
    return str(target)


def _copy(source: Path, target: Path) -> None:
    # A connection of its own: the thread must share none.
    database = Database(source)
    try:
        database.back_up(target)
    finally:
        database.close()


OPERATIONS: Mapping[str, Callable[[Plane, str, Arguments], Awaitable[Any]]] = {
    "nodes": list_nodes,
    "node": show_node,
    "fabrics": list_fabrics,
    "events": list_events,
    "remove-node": remove_node,
    "apply": apply,
    "plan": plan,
    "scale": scale,
    "models": list_models,
    "replicas": list_replicas,
    "replica": show_replica,
    "explain": explain_model,
    "weights": show_weights,
    "log": read_log,
    "drain": drain,
    "undrain": undrain,
    "plan-drain": plan_drains,
    "drains": list_drains,
    "rollout": show_rollout,
    "rollback": roll_back,
    "keys": list_keys,
    "create-key": create_key,
    "revoke-key": revoke_key,
    "gateways": list_gateways,
    "revoke": revoke,
    "unrevoke": unrevoke,
    "revocations": list_revocations,
    "backup": back_up,
    "engine-check": check_engine,
}

"""Drains and roll-outs: asked for, stored before they are answered, and shown as they go on.

Rules: a drain goes on without whoever asked for it; asking again changes its terms and tries anew what had failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import trio

from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.observing import observe
from llmgw_core.control.plane import Plane
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.drain import Drain, Rollout
from llmgw_core.plan.drain import DrainState, DrainStatus, drain_status, plan_drain, told_state
from llmgw_core.plan.rollout import is_outdated
from llmgw_core.plan.roster import ordinal_of
from llmgw_core.store.change import DrainAsked, DrainEnded, RolledBack, RolloutAsked
from llmgw_core.wire.facts import clipped

MOST_NODES = 1000
MOST_PARALLEL = 1000
MOST_SECONDS = 30 * 24 * 3600.0
TEXT_CHARACTERS = 500


async def drain(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """Let nodes take nothing new, and move what they have; how far each is."""
    drains = _drains_argument(plane, operator, arguments)
    asked = [DrainAsked(each.node, each.by, each.at, each.until, each.stop_first, each.max_parallel) for each in drains]
    events = [plane.event("drain asked", each.node, f"by {operator}{_terms(each)}") for each in drains]
    await plane.writer.write(*asked, *events)
    plane.deployment.drains.update({each.node: each for each in drains})
    plane.deployment.desire_again()
    return _statuses(plane, [each.node for each in drains])


async def undrain(plane: Plane, operator: str, arguments: Arguments) -> None:
    """Let nodes take replicas again; moves that have not replaced their original are called off."""
    nodes = _nodes_argument(plane, arguments)
    for node in nodes:
        if node not in plane.deployment.drains:
            raise BadQuestion(f"{node} does not drain")
    ended = [DrainEnded(node) for node in nodes]
    await plane.writer.write(*ended, *(plane.event("drain ended", node, f"by {operator}") for node in nodes))
    for node in nodes:
        plane.deployment.drains.pop(node, None)
    plane.deployment.desire_again()


async def plan_drains(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """Where each replica of these nodes would go; nothing is done."""
    drains = _drains_argument(plane, operator, arguments)
    moves = await trio.to_thread.run_sync(plan_drain, observe(plane), drains)
    return [{**attrs.asdict(each), "reason": clipped(each.reason, TEXT_CHARACTERS)} for each in moves]


async def list_drains(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """How far each drain is, or each of the nodes that are named."""
    return _statuses(plane, _nodes_argument(plane, arguments) or sorted(plane.deployment.drains))


async def show_rollout(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """How far a model's change is; with `retry` or `stop_first`, what failed of it is tried anew first."""
    model = _model_argument(plane, arguments)
    stop_first = argument(arguments, "stop_first", bool, False)
    if stop_first or argument(arguments, "retry", bool, False):
        asked = Rollout(model, plane.now(), stop_first)
        told = plane.event("roll-out asked again", "", f"{model} by {operator}")
        await plane.writer.write(RolloutAsked(model, asked.at, stop_first), told)
        plane.deployment.rollouts[model] = asked
        plane.deployment.desire_again()
    return _rollout(plane, model)


async def roll_back(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """Run a model again as it ran before its last change, until the next apply."""
    model = _model_argument(plane, arguments)
    served = plane.deployment.served.get(model)
    if served is None:
        raise BadQuestion(f"{model} has not been changed while it served: there is nothing to go back to")
    if {offer.key for offer in served} == {offer.key for offer in plane.deployment.offers_of(model)}:
        raise BadQuestion(f"{model} is wanted as it ran before its last change already")
    told = plane.event("rolled back", "", f"{model} by {operator}")
    await plane.writer.write(RolledBack(model), told)
    plane.deployment.roll_back(model)
    plane.deployment.desire_again()
    return _rollout(plane, model)


def _drains_argument(plane: Plane, operator: str, arguments: Arguments) -> list[Drain]:
    nodes = _nodes_argument(plane, arguments)
    if not nodes:
        raise BadQuestion("no node is named")
    deadline_s = argument(arguments, "deadline_s", float, 0.0)
    parallel = argument(arguments, "max_parallel", int, 1)
    if not 0 <= deadline_s <= MOST_SECONDS:
        raise BadQuestion(f"deadline: expected up to {MOST_SECONDS:g} s, got {deadline_s:g}")
    if not 1 <= parallel <= MOST_PARALLEL:
        raise BadQuestion(f"max_parallel: expected 1 to {MOST_PARALLEL}, got {parallel}")
    now = plane.now()
    until = now + deadline_s if deadline_s else None
    stop_first = argument(arguments, "stop_first", bool, False)
    return [Drain(node, operator, now, until, stop_first, parallel) for node in nodes]


def _nodes_argument(plane: Plane, arguments: Arguments, most: int = MOST_NODES) -> list[str]:
    nodes = argument(arguments, "nodes", list, [])
    if len(nodes) > most or not all(isinstance(node, str) for node in nodes):
        raise BadQuestion(f"nodes: expected at most {most} names")
    for node in nodes:
        if node not in plane.fleet.nodes:
            shown = repr(clipped(node, 80))
            raise BadQuestion(f"no node {shown} has ever been here; `llmgw ctl nodes` lists those that have")
    return list(dict.fromkeys(nodes))


def _model_argument(plane: Plane, arguments: Arguments) -> str:
    model = argument(arguments, "model", str, "")
    if model not in plane.deployment.wanted:
        known = ", ".join(sorted(plane.deployment.wanted)) or "none"
        raise BadQuestion(f"the catalog has no model {clipped(model, 80)!r} (there are: {clipped(known, 500)})")
    return model


def _terms(drain: Drain) -> str:
    terms = [f"up to {drain.max_parallel} at a time"] if drain.max_parallel > 1 else []
    terms += ["an original may stop first"] if drain.stop_first else []
    terms += [f"within {drain.until - drain.at:g} s"] if drain.until is not None else []
    return "".join(f", {term}" for term in terms)


def _statuses(plane: Plane, nodes: Sequence[str]) -> list[dict[str, Any]]:
    world, blocked, stored = observe(plane), plane.deployment.blocked, plane.deployment.draining
    statuses = [drain_status(node, world, blocked) for node in nodes]
    return [_shown(each, plane.deployment.drains.get(each.node), stored.get(each.node)) for each in statuses]


def _shown(status: DrainStatus, drain: Drain | None, stored: DrainState | None) -> dict[str, Any]:
    left = {name: clipped(reason, TEXT_CHARACTERS) for name, reason in status.left.items()}
    return {
        "node": status.node,
        "state": told_state(status.state, stored).value if drain is not None else "not draining",
        "by": drain.by if drain else "",
        "at": drain.at if drain else None,
        "terms": _terms(drain).removeprefix(", ") if drain else "",
        "left": left,
    }


def _rollout(plane: Plane, model: str) -> dict[str, Any]:
    offers = plane.deployment.offers_of(model)
    records = [record for record in plane.deployment.records.values() if record.model == model and record.attempts]
    return {
        "model": model,
        "rolled_back": model in plane.deployment.rolled_back,
        "profiles": [offer.profile_name for offer in offers],
        "replicas": [_changing(plane, record) for record in sorted(records, key=lambda each: ordinal_of(each.id))],
    }


def _changing(plane: Plane, record: ReplicaRecord) -> dict[str, Any]:
    offers = plane.deployment.offers_of(record.model)
    outdated = record.assignment is not None and is_outdated(record.assignment, offers)
    new = record.move.replacement if record.move is not None else None
    return {
        "id": record.id,
        "generation": record.assignment.launch.generation if record.assignment else None,
        "outdated": outdated,
        "replacement": ", ".join(place.node for place in new.launch.places) if new else "",
        "blocked": clipped(plane.deployment.blocked.get(record.id, ""), TEXT_CHARACTERS),
    }

"""Nodes and fabrics as an operator sees them: plain values, with a reason for anything that is wrong.

Rules: what takes a look at the whole fleet is found out once for all nodes; a list of many nodes has of each what a
table shows, and fits into one message.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from llmgw_core.control.fleet import Fleet, Node
from llmgw_core.model.node import Fabric, NodeFacts, Refutation
from llmgw_core.plan.drain import DrainState
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.refutation import FabricMember, refuted
from llmgw_core.wire.facts import clipped, fitting, plain_facts
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

Drains = Mapping[str, DrainState]
"""By node that drains."""
DAY_S = 86_400
WARN_DAYS = 30
MOST_TROUBLES = 50
TROUBLE_CHARACTERS = 500
NODE_BYTES = 16 * 1024
"""Of one node in the list of all."""
LIST_BYTES = MESSAGE_LIMIT_BYTES // 2


@frozen
class _Comparison:
    """What only shows where nodes are held against each other."""

    twins: Mapping[str, tuple[str, ...]]
    """By machine id, the nodes that state it, in order."""
    refutations: Mapping[str, tuple[str, ...]]
    """By node, the reasons."""


def _compare(fleet: Fleet) -> _Comparison:
    twins: dict[str, list[str]] = defaultdict(list)
    for name in sorted(fleet.nodes):
        facts = fleet.nodes[name].facts
        if facts is not None and facts.machine_id:
            twins[facts.machine_id].append(name)
    reasons: dict[str, list[str]] = defaultdict(list)
    for each in refutations(fleet):
        for name in each.nodes:
            reasons[name].append(each.reason)
    return _Comparison(
        {machine: tuple(names) for machine, names in twins.items()},
        {name: tuple(found) for name, found in reasons.items()},
    )


def node_view(fleet: Fleet, node: Node, now: float, drains: Drains) -> dict[str, Any]:
    """`days_left` is of the certificate, negative once it has ended; times are seconds since 1970."""
    facts = plain_facts(node.facts) if node.facts else None
    return {**_outline(fleet, node, now, _compare(fleet), drains), "facts": facts}


def node_views(fleet: Fleet, now: float, drains: Drains) -> list[dict[str, Any]]:
    """All nodes by name, the same of each but for its facts, which are cut to what tells nodes apart."""
    compared = _compare(fleet)
    nodes = [fleet.nodes[name] for name in sorted(fleet.nodes)]
    return [_in_list(fleet, node, now, compared, drains) for node in nodes]


def _in_list(fleet: Fleet, node: Node, now: float, compared: _Comparison, drains: Drains) -> dict[str, Any]:
    """No node takes the others' room in the message: one with very much to say is shown without its facts."""
    outline = _outline(fleet, node, now, compared, drains)
    brief = {**outline, "facts": _brief(node.facts) if node.facts else None}
    if len(json.dumps(brief)) <= NODE_BYTES:
        return brief
    more = f"it says too much for this list: `llmgw ctl node {node.name}` shows it"
    return {**outline, "troubles": [more], "facts": None}


def _outline(fleet: Fleet, node: Node, now: float, compared: _Comparison, drains: Drains) -> dict[str, Any]:
    state = fleet.state(node, now)
    return {
        "name": node.name,
        "state": state.value,
        "drain": drains[node.name].value if node.name in drains else "",
        "address": node.address,
        "first_seen": node.first_seen,
        "last_seen": node.last_heard,
        "days_left": int((node.until - now) // DAY_S),
        "troubles": _few(_troubles(fleet, node, state, now, compared)),
    }


def _brief(facts: NodeFacts) -> dict[str, Any]:
    return {
        "agent_version": facts.agent_version,
        "gpus": {
            "outcome": facts.gpus.outcome.value,
            "gpus": [{"index": gpu.index, "name": gpu.name} for gpu in facts.gpus.gpus],
        },
        "fabrics": [{"name": fabric.name} for fabric in facts.fabrics],
        "engines": [
            {
                "engine": each.engine,
                "executable": each.executable,
                "version": each.version,
                "help_digest": each.help_digest,
                "outcome": each.outcome,
            }
            for each in facts.engines
        ],
    }


def _troubles(fleet: Fleet, node: Node, state: NodeState, now: float, compared: _Comparison) -> list[str]:
    found = []
    if state is not NodeState.ONLINE:
        found.append(f"not heard for {now - node.last_heard:.0f} s")
    if node.serial in fleet.revoked:
        found.append("its certificate is revoked")
    days = int((node.until - now) // DAY_S)
    if days < WARN_DAYS:
        found.append(f"its certificate ends in {days} days" if days >= 0 else "its certificate has ended")
    if node.facts is not None:
        found += _troubles_of(node.facts) + _twins(node.name, compared.twins.get(node.facts.machine_id or "", ()))
        found += compared.refutations.get(node.name, ())
    return found


def _troubles_of(facts: NodeFacts) -> list[str]:
    found = list(facts.refused_plugins)
    found += [f"GPUs: {facts.gpus.reason}"] if facts.gpus.reason else []
    found += [f"GPU {gpu.index}: {gpu.trouble}" for gpu in facts.gpus.gpus if gpu.trouble]
    found += [f"fabric {fabric.name}: {fabric.trouble}" for fabric in facts.fabrics if fabric.trouble]
    found += [f"{each.engine}: {each.reason}" for each in facts.engines if each.outcome == "findings"]
    found += [f"nobody here knows this engine: {each}" for each in facts.strays]
    return found


def _twins(name: str, twins: tuple[str, ...]) -> list[str]:
    """Clones of one image share their machine id, and much goes wrong with them (DHCP, journals)."""
    others = [other for other in twins if other != name]
    return [f"the same machine id as {', '.join(others)}; was one image booted before it was cloned?"] if others else []


def fabric_views(fleet: Fleet, now: float) -> list[dict[str, Any]]:
    """Each fabric with its members, and what refutes it."""
    members: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in sorted(fleet.nodes.values(), key=lambda node: node.name):
        state = fleet.state(node, now).value
        for fabric in _fabrics(node):
            members[fabric.name].append({"node": node.name, "state": state, **_shown_fabric(fabric)})
    reasons: dict[str, list[str]] = defaultdict(list)
    for each in refutations(fleet):
        reasons[each.fabric].append(each.reason)
    views = [{"name": name, "refuted": _few(reasons[name]), "members": members[name]} for name in sorted(members)]
    if len(json.dumps(views)) > LIST_BYTES:
        views = [_without_details(view) for view in views]
    return fitting(views, LIST_BYTES, last=False)


def _without_details(view: dict[str, Any]) -> dict[str, Any]:
    """Where some say too much, every fabric is still shown, with who is on it."""
    short = "too much to show here"
    members = [{**member, "hcas": [], "trouble": member["trouble"] and short} for member in view["members"]]
    return {**view, "refuted": view["refuted"][:1], "members": members}


def _shown_fabric(fabric: Fabric) -> dict[str, Any]:
    return {**attrs.asdict(fabric), "trouble": clipped(fabric.trouble, TROUBLE_CHARACTERS)}


def _few(texts: Sequence[str]) -> list[str]:
    """The first ones, none of them long, and how many more there are."""
    shown = [clipped(each, TROUBLE_CHARACTERS) for each in texts[:MOST_TROUBLES]]
    return shown + ([f"and {len(texts) - len(shown)} more"] if len(texts) > len(shown) else [])


def _fabrics(node: Node) -> tuple[Fabric, ...]:
    return node.facts.fabrics if node.facts else ()


def refutations(fleet: Fleet) -> tuple[Refutation, ...]:
    members = []
    for node in fleet.nodes.values():
        ports = {port.hca: port for port in node.facts.infiniband.ports} if node.facts else {}
        for fabric in _fabrics(node):
            theirs = tuple(ports[hca] for hca in fabric.hcas if hca in ports)
            members.append(FabricMember(fabric.name, node.name, theirs))
    return refuted(members)

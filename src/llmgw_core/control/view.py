"""Nodes and fabrics as an operator sees them: plain values, with a reason for anything that is wrong."""

from __future__ import annotations

from typing import Any

import attrs

from llmgw_core.control.fleet import Fleet, Node
from llmgw_core.model.node import Fabric, NodeFacts
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.refutation import FabricMember, refuted
from llmgw_core.wire.facts import plain_facts

DAY_S = 86_400
WARN_DAYS = 30


def node_view(fleet: Fleet, node: Node, now: float) -> dict[str, Any]:
    """`days_left` is of the certificate, negative once it has ended; times are seconds since 1970."""
    state = fleet.state(node, now)
    return {
        "name": node.name,
        "state": state.value,
        "address": node.address,
        "first_seen": node.first_seen,
        "last_seen": node.last_heard,
        "days_left": int((node.until - now) // DAY_S),
        "troubles": _troubles(fleet, node, state, now),
        "facts": plain_facts(node.facts) if node.facts else None,
    }


def _troubles(fleet: Fleet, node: Node, state: NodeState, now: float) -> list[str]:
    found = []
    if state is not NodeState.ONLINE:
        found.append(f"not heard for {now - node.last_heard:.0f} s")
    if node.serial in fleet.revoked:
        found.append("its certificate is revoked")
    days = int((node.until - now) // DAY_S)
    if days < WARN_DAYS:
        found.append(f"its certificate ends in {days} days" if days >= 0 else "its certificate has ended")
    if node.facts is not None:
        found += _troubles_of(node.facts) + _twins(fleet, node, node.facts)
        found += [each.reason for each in _refutations(fleet) if node.name in each.nodes]
    return found


def _troubles_of(facts: NodeFacts) -> list[str]:
    found = [f"GPUs: {facts.gpus.reason}"] if facts.gpus.reason else []
    found += [f"GPU {gpu.index}: {gpu.trouble}" for gpu in facts.gpus.gpus if gpu.trouble]
    found += [f"fabric {fabric.name}: {fabric.trouble}" for fabric in facts.fabrics if fabric.trouble]
    found += [f"{each.engine}: {each.reason}" for each in facts.engines if each.outcome == "findings"]
    return found + list(facts.refused_plugins)


def _twins(fleet: Fleet, node: Node, facts: NodeFacts) -> list[str]:
    """Clones of one image share their machine id, and much goes wrong with them (DHCP, journals)."""
    twins = [
        other.name
        for other in fleet.nodes.values()
        if other is not node and other.facts and facts.machine_id and other.facts.machine_id == facts.machine_id
    ]
    return (
        [f"the same machine id as {', '.join(sorted(twins))}; was one image booted before it was cloned?"]
        if twins
        else []
    )


def fabric_views(fleet: Fleet, now: float) -> list[dict[str, Any]]:
    """Each fabric with its members, and what refutes it."""
    names = sorted({fabric.name for node in fleet.nodes.values() for fabric in _fabrics(node)})
    refutations = _refutations(fleet)
    return [
        {
            "name": name,
            "refuted": [each.reason for each in refutations if each.fabric == name],
            "members": [
                {"node": node.name, "state": fleet.state(node, now).value, **attrs.asdict(fabric)}
                for node in sorted(fleet.nodes.values(), key=lambda node: node.name)
                for fabric in _fabrics(node)
                if fabric.name == name
            ],
        }
        for name in names
    ]


def _fabrics(node: Node) -> tuple[Fabric, ...]:
    return node.facts.fabrics if node.facts else ()


def _refutations(fleet: Fleet) -> tuple[Any, ...]:
    members = []
    for node in fleet.nodes.values():
        ports = {port.hca: port for port in node.facts.infiniband.ports} if node.facts else {}
        for fabric in _fabrics(node):
            theirs = tuple(ports[hca] for hca in fabric.hcas if hca in ports)
            members.append(FabricMember(fabric.name, node.name, theirs))
    return refuted(members)

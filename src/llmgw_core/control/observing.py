"""The planner's world, taken from the control plane's memory."""

from __future__ import annotations

import secrets

from llmgw_core.control.fleet import Fleet, Node
from llmgw_core.control.plane import Plane
from llmgw_core.control.view import refutations
from llmgw_core.plan.world import ObservedNode, World


def observe(plane: Plane) -> World:
    """One snapshot; nothing in it changes any more."""
    now, deployment = plane.now(), plane.deployment
    return World(
        catalog=deployment.catalog,
        wanted=deployment.wanted,
        offers=deployment.offers,
        records=deployment.records,
        nodes={
            name: _observe_node(plane.fleet, node, now, name in deployment.drains)
            for name, node in plane.fleet.nodes.items()
        },
        gateways=plane.routes.observed(),
        drains=deployment.drains,
        rollouts=deployment.rollouts,
        applied_at=deployment.applied.at if deployment.applied else 0.0,
        soak_s=deployment.soak_s,
        refuted={each.fabric: each.reason for each in refutations(plane.fleet)},
        now=now,
        seed=secrets.token_hex(32),
        lost_after_s=plane.fleet.pace.lost_after_s,
        spared=deployment.decision.spared,
    )


def _observe_node(fleet: Fleet, node: Node, now: float, draining: bool) -> ObservedNode:
    outbox = node.connection.outbox if node.connection and node.connection.live else None
    return ObservedNode(
        name=node.name,
        state=fleet.state(node, now),
        facts=node.facts,
        shards=outbox.shards if outbox else None,
        settled=outbox.settled if outbox else False,
        last_heard=node.last_heard,
        draining=draining,
    )

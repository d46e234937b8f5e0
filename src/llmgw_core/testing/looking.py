"""Waits for what nodes tell of themselves: a node is listed as soon as it is connected, before it has said a word."""

from __future__ import annotations

from typing import Any

from llmgw_core.model.node import NOT_LOOKED_YET
from llmgw_core.testing.cluster import ASK_S, Cluster, wait_until


def facts_of(cluster: Cluster, node: str) -> dict[str, Any]:
    """What it has told, without what is as when nobody says it; nothing before its first report has come."""
    found: dict[str, Any] = cluster.ask("node", node=node)["facts"] or {}
    return found


def wait_until_looked(cluster: Cluster, *nodes: str) -> None:
    """All of these are there, and have told of their GPUs and engines: what is placed then, is placed among all."""
    wait_until(lambda: {*nodes} <= {each["name"] for each in cluster.ask("nodes")}, "all nodes", every_s=ASK_S)
    for node in nodes:
        wait_until(lambda: _has_looked(facts_of(cluster, node)), f"what {node} has looked at", every_s=ASK_S)  # noqa: B023


def _has_looked(facts: dict[str, Any]) -> bool:
    looks = [facts.get("gpus", {}), *facts.get("engines", ())]
    return len(looks) > 1 and all(each.get("reason") != NOT_LOOKED_YET for each in looks)

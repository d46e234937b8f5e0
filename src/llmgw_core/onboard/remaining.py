"""What onboarding does not do: which engines and weights are missing on a new node, and what else is to be mended.

In: what the control plane says to an operator, or what the node's own inventory has.  Out: lines.  Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from llmgw_core.model.node import NOT_LOOKED_YET
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.candidate import NOT_ANSWERED, NOT_SAID
from llmgw_core.plan.where_weights import NO_ANSWER

HINT = "llmgw ctl explain MODEL, llmgw ctl weights MODEL"


@frozen
class Fleet:
    """An operator's view."""

    node: Mapping[str, Any] = field(factory=dict, converter=frozen_mapping, hash=False)
    explained: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    """Of each model of the catalog."""
    weights: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    trouble: str = ""
    """Why it could not be asked."""


def has_answered(name: str, fleet: Fleet) -> bool:
    """Whether the node has said what it has: an engine's help may take a while."""
    facts = fleet.node.get("facts") or {}
    looks = [facts.get("gpus", {}), *facts.get("engines", ())]
    looked = len(looks) > 1 and all(each.get("reason") != NOT_LOOKED_YET for each in looks)
    waits = any(refusal in (NOT_ANSWERED, NOT_SAID) for _, _, refusal in _refusals(name, fleet))
    waits |= any(said.endswith(NO_ANSWER) for _, said in _weights(name, fleet))
    return fleet.node.get("state") == "online" and looked and not waits


def render_fleet(name: str, fleet: Fleet) -> tuple[str, ...]:
    if fleet.trouble:
        return (f"not asked as an operator: {fleet.trouble}",)
    facts = fleet.node.get("facts") or {}
    lines = [f"{name}: {fleet.node.get('state', 'unknown')}; {_outfit(facts)}"]
    lines += [f"to be mended: {trouble}" for trouble in fleet.node.get("troubles", ())]
    if not fleet.explained:
        return (*lines, "no catalog was applied yet, so nobody knows which engines and weights it will need here")
    missing = [f"profile {profile} of {model}: {name} {refusal}" for model, profile, refusal in _refusals(name, fleet)]
    missing += [f"weights of {model}: {said}" for model, said in _weights(name, fleet)]
    if not missing:
        return (*lines, "every profile of the catalog could run here, and all weights are whole")
    return (*lines, "onboarding installs no engines and copies no weights; missing here:", *missing)


def render_inventory(text: str) -> tuple[str, ...]:
    """From the inventory that an agent keeps on its disk; for whoever is no operator."""
    found = ", ".join(_engine(each) for each in _kept(text) if _is_there(each))
    return (
        f"engines found: {found or 'none (yet: their helps may take a while)'}",
        "onboarding installs no engines and copies no weights. Which of them the catalog needs here was not checked, "
        f"since no operator's certificate was given (--identity PREFIX); an operator sees it: {HINT}",
    )


def _refusals(name: str, fleet: Fleet) -> list[tuple[str, str, str]]:
    """Model, profile, and what this node says to it."""
    return [
        (str(model["model"]), str(profile["profile"]), str(node["refusal"]))
        for model in fleet.explained
        for profile in model["profiles"]
        for node in profile["nodes"]
        if node["node"] == name and node["refusal"] and not _is_passing(node["refusal"])
    ]


def _is_passing(refusal: str) -> bool:
    """What is no lack of an engine or of weights: it is busy, or drains."""
    return " free " in refusal or refusal.startswith(("drains", "has no port"))


def _weights(name: str, fleet: Fleet) -> list[tuple[str, str]]:
    return [
        (str(model["model"]), f"{node['weights']}: {node['reason']}" if node["reason"] else str(node["weights"]))
        for model in fleet.weights
        for node in model["nodes"]
        if node["node"] == name and node["weights"] in ("not whole", "not known")
    ]


def _outfit(facts: Mapping[str, Any]) -> str:
    report = facts.get("gpus", {})
    gpus = report.get("gpus", ())
    names = "/".join(sorted({gpu.get("name") or "unknown" for gpu in gpus}))
    told = f"{len(gpus)} x {names}" if gpus else f"no GPUs ({report.get('reason') or report.get('outcome', 'unknown')})"
    fabrics = ", ".join(each["name"] for each in facts.get("fabrics", ())) or "no fabric"
    engines = ", ".join(_engine(each) for each in facts.get("engines", ()) if _is_there(each)) or "no engine"
    return f"{told}; {fabrics}; {engines}"


def _is_there(each: Mapping[str, Any]) -> bool:
    """An interpreter that could run an engine is none yet."""
    return bool(each.get("version")) or each.get("outcome", "unchecked") != "unchecked"


def _engine(each: Mapping[str, Any]) -> str:
    version = f" {each['version']}" if each.get("version") else ""
    return f"{each.get('engine', 'unknown')}{version} ({each.get('outcome', 'unchecked')})"


def _kept(text: str) -> Sequence[Mapping[str, Any]]:
    """`discovery.kept_inventory`'s file; nothing where it is another."""
    try:
        return [each["found"] for each in json.loads(text)["engines"]]
    except (ValueError, KeyError, TypeError):
        return ()

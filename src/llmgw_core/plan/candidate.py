"""Whether a node could take a shard of an offer, and the first thing that speaks against it.

In: a node, an offer.  Out: a `Candidate`, or a `Refused` with a sentence that goes on after the node's name.  Pure.
Rules: the filters in their order: eligible, not draining, engine, command, weights, network, GPUs, ports; what is not
known does not pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import frozen

from llmgw_core.model.launch import Offer, OfferChecked
from llmgw_core.model.node import NOT_LOOKED_YET, EngineFound, Fabric, Found, NodeFacts
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.room import Room
from llmgw_core.plan.world import ObservedNode


class Filter(Enum):
    """In order. The values go on after a number of nodes."""

    ELIGIBLE = "cannot take anything"
    DRAINING = "drain"
    ENGINE = "have no such engine"
    COMMAND = "would not start it"
    WEIGHTS = "lack the weights"
    NETWORK = "cannot be in a group"
    GPUS = "have fewer"
    PORTS = "have no port left"


NOT_ANSWERED = "has not answered this offer yet"
NOT_SAID = "has not said yet what it runs"


@frozen
class Refused:
    """What speaks against a node."""

    node: str
    filter: Filter
    reason: str
    """Goes on after the node's name: `has 6 free GPUs`."""
    free: int = 0
    """GPUs, where they are too few."""


@frozen
class Candidate:
    """A node of which only its free GPUs and ports are still to be asked."""

    room: Room
    facts: NodeFacts
    engine: EngineFound
    checked: OfferChecked
    fabrics: tuple[Fabric, ...] = ()
    """On which it may be in a group; empty where none is needed."""

    @property
    def name(self) -> str:
        return self.room.node.name

    @property
    def build(self) -> tuple[str | None, str | None]:
        """Equal for nodes whose engines take the same commands and speak the same protocol."""
        return self.engine.version, self.engine.help_digest


def examine(
    room: Room, offer: Offer, checked: Mapping[str, OfferChecked], refuted: Mapping[str, str]
) -> Candidate | Refused:
    """All filters but the last two."""
    node, facts = room.node, room.node.facts
    absent = _absent(node)
    if absent or facts is None:
        return Refused(node.name, Filter.ELIGIBLE, absent or "has not reported yet")
    if node.draining:
        return Refused(node.name, Filter.DRAINING, "drains")
    engine = room.engine(offer.profile.engine)
    if engine is None:
        return _no_engine(node.name, facts, offer.profile.engine)
    answer = checked.get(offer.key)
    if answer is None:
        return Refused(node.name, Filter.COMMAND, NOT_ANSWERED)
    if answer.refusal:
        return Refused(node.name, Filter.COMMAND, f"refuses it: {answer.refusal}")
    if answer.weights:
        return Refused(node.name, Filter.WEIGHTS, f"lacks the weights: {answer.weights}")
    if offer.profile.nodes == 1:
        return Candidate(room, facts, engine, answer)
    fabrics = tuple(each for each in facts.fabrics if not each.trouble and each.name not in refuted)
    reason = _no_group(facts, engine, fabrics, refuted)
    return Refused(node.name, Filter.NETWORK, reason) if reason else Candidate(room, facts, engine, answer, fabrics)


def _absent(node: ObservedNode) -> str:
    if node.state is not NodeState.ONLINE:
        return f"is {node.state.value}"
    return NOT_SAID if node.shards is None else ""


def _no_engine(name: str, facts: NodeFacts, engine: str) -> Refused:
    found = next((each for each in facts.engines if each.engine == engine), None)
    if found is not None and found.reason == NOT_LOOKED_YET:
        # It is not waited for: an engine's help may hang for minutes.
        return Refused(name, Filter.COMMAND, f"has not looked at its {engine} yet")
    why = f": {found.reason}" if found is not None and found.reason else ""
    return Refused(name, Filter.ENGINE, f"has no {engine}{why}")


def _no_group(facts: NodeFacts, engine: EngineFound, fabrics: tuple[Fabric, ...], refuted: Mapping[str, str]) -> str:
    if not facts.address:
        return "does not know the address by which others reach it"
    if engine.version is None and engine.help_digest is None:
        return f"does not know which version its {engine.engine} is"
    if fabrics:
        return ""
    if not facts.fabrics:
        return "is on no fabric"
    fabric = facts.fabrics[0]
    return (
        f"is not on {fabric.name}: {fabric.trouble}" if fabric.trouble else refuted.get(fabric.name, "is on no fabric")
    )


def has_room(candidate: Candidate, offer: Offer) -> bool:
    """The last two filters, which change while others are placed."""
    if candidate.room.count_free(offer.profile) < offer.profile.gpus_per_node:
        return False
    return not candidate.room.lacks_ports(candidate.facts, offer.profile.nodes > 1)


def examine_room(candidate: Candidate, offer: Offer) -> Refused | None:
    """The same, in words."""
    free = candidate.room.count_free(offer.profile)
    if free < offer.profile.gpus_per_node:
        return Refused(candidate.name, Filter.GPUS, _too_few(candidate, offer, free), free)
    lacking = candidate.room.lacks_ports(candidate.facts, offer.profile.nodes > 1)
    return Refused(candidate.name, Filter.PORTS, f"has no free port in {lacking}") if lacking else None


def _too_few(candidate: Candidate, offer: Offer, free: int) -> str:
    report = candidate.facts.gpus
    if report.outcome is Found.FAILED:
        return f"cannot tell its GPUs: {report.reason}"
    count = len(report.gpus)
    least = offer.profile.min_gpu_memory_mib
    whole = len(candidate.room.whole_gpus(least))
    broken = count - len(candidate.room.whole_gpus(0))
    said = f"has {free or 'no'} free GPU{'s' if free != 1 else ''} of {count}" if count else "has no GPU"
    notes = [f"{broken} divided or in trouble"] if broken else []
    if candidate.facts.stray_gpus:
        notes.append(f"{len(candidate.facts.stray_gpus)} held by engines that nobody knows")
    if count - broken - whole:
        notes.append(f"{count - broken - whole} with less than {least} MiB")
    return f"{said} ({', '.join(notes)})" if notes else said

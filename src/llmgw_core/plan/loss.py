"""Which nodes are lost, and which are silent with so many others that it is rather the network.

In: the nodes as they are seen, and who was spared at the last look.  Out: `Losses`.  Pure.
Rules: silence is not death: when at least two nodes and more than a fifth of the fleet fell silent within
`lost_after_s`, none of them is lost, however long it lasts; they come back or are removed. They come back one after the
other, so when they are too many no more, those that are left have `lost_after_s` for it. What was removed is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from attrs import field, frozen

from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.world import ObservedNode

GUARD_FRACTION = 0.2
GUARD_LEAST = 2


@frozen
class Losses:
    lost: frozenset[str] = frozenset()
    guarded: frozenset[str] = frozenset()
    """Would be lost, and are not, because too many fell silent with them."""
    reasons: tuple[str, ...] = ()
    """A line for each mass loss, the earliest first."""
    spared: Mapping[str, float] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By guarded node, until when at the latest; infinite while it is silent with too many others."""


def find_losses(
    nodes: Mapping[str, ObservedNode], lost_after_s: float, now: float = 0.0, before: Mapping[str, float] | None = None
) -> Losses:
    """Sorts those that are `LOST` into lost and guarded. `before`: who was `spared` at the last look."""
    lost = frozenset(name for name, node in nodes.items() if node.state is NodeState.LOST)
    if not lost:
        return Losses()
    silent = sorted(
        (node for node in nodes.values() if node.state in (NodeState.SUSPECT, NodeState.LOST)),
        key=lambda node: (node.last_heard, node.name),
    )
    masses = [mass for mass in _masses(silent, len(nodes), lost_after_s) if lost & set(mass)]
    spared = {name: min((before or {})[name], now + lost_after_s) for name in lost & (before or {}).keys()}
    spared |= {name: inf for mass in masses for name in mass if name in lost}
    guarded = frozenset(name for name, until in spared.items() if until > now)
    told = tuple(_tell(mass, len(nodes)) for mass in masses)
    return Losses(lost - guarded, guarded, told, {name: spared[name] for name in sorted(guarded)})


def _masses(silent: Sequence[ObservedNode], fleet: int, within_s: float) -> Iterator[list[str]]:
    """Names of those that fell silent together and are too many; windows that meet are one."""
    mass: list[str] = []
    reached = end = 0
    for first, node in enumerate(silent):
        while end < len(silent) and silent[end].last_heard - node.last_heard <= within_s:
            end += 1
        if end - first < GUARD_LEAST or end - first <= GUARD_FRACTION * fleet:
            continue
        if first >= reached and mass:
            yield mass
            mass = []
        mass += [each.name for each in silent[max(first, reached) : end]]
        reached = max(reached, end)
    if mass:
        yield mass


def _tell(mass: Sequence[str], fleet: int) -> str:
    named = ", ".join(sorted(mass)[:3]) + (", …" if len(mass) > 3 else "")
    return f"{len(mass)} of {fleet} nodes fell silent together ({named}): none of them loses its replicas"

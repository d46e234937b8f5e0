"""Why an offer has no place, for people.

In: who could take a shard of it, and what speaks against each other node.  Out: a sentence with numbers.  Pure.
Rules: few nodes are named one by one, many are counted; the whole is one line of some 300 characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from llmgw_core.model.launch import Offer
from llmgw_core.plan.candidate import Candidate, Filter, Refused, examine_room
from llmgw_core.plan.pool import Build, Pool
from llmgw_core.plan.room import Room

MOST_CHARACTERS = 300
_NAMED = 3
"""So many nodes are named one by one."""


@frozen
class Shortage:
    """What is known of one offer."""

    offer: Offer
    refused: tuple[Refused, ...]
    candidates: Mapping[str, Candidate]
    pools: Mapping[Build, Pool]
    rooms: Iterable[Room]
    never: Mapping[str, Refused]
    """The nodes that one replica must not go to."""

    @property
    def all_refused(self) -> list[Refused]:
        """By name, every node that cannot take a shard now."""
        full = []
        for name, candidate in self.candidates.items():
            refused = self.never.get(name) or examine_room(candidate, self.offer)
            if refused is not None:
                full.append(refused)
        return sorted([*self.refused, *full], key=lambda each: each.node)


def render_shortages(shortages: Sequence[Shortage]) -> str:
    """Of all profiles of a model."""
    if len(shortages) == 1:
        return _cut(render_shortage(shortages[0]), MOST_CHARACTERS)
    each = MOST_CHARACTERS // max(1, len(shortages)) - 2
    parts = [f"{one.offer.profile_name} {render_shortage(one)}" for one in shortages]
    return "; ".join(_cut(part, max(each, 60)) for part in parts)


def render_shortage(shortage: Shortage) -> str:
    """`needs 8 free GPUs on one node; gpu-01 has 6 free GPUs of 8`."""
    profile = shortage.offer.profile
    gpus = f"{profile.gpus_per_node} free GPU{'s' if profile.gpus_per_node != 1 else ''}"
    if profile.nodes > 1:
        whose = f" with {gpus}" if profile.gpus_per_node else ""
        return f"needs {profile.nodes} nodes{whose} on one fabric; {_tell_fabrics(shortage)}"
    needs = f"needs {gpus} on one node" if profile.gpus_per_node else "needs a node"
    return f"{needs}; {_tell_nodes(shortage.all_refused)}"


def render_briefly(shortage: Shortage) -> str:
    """`needs 8 GPUs, 4 free`; `needs 2 nodes with 8 GPUs each, 1 free`: the most that there is in one place."""
    profile = shortage.offer.profile
    gpus = f"{profile.gpus_per_node} GPU{'s' if profile.gpus_per_node != 1 else ''}"
    if profile.nodes > 1:
        fabrics = {build[0] for build in shortage.pools}
        most = max((len(_fit(name, shortage)) for name in fabrics), default=0)
        return f"needs {profile.nodes} nodes{f' with {gpus} each' if profile.gpus_per_node else ''}, {most} free"
    needs = f"needs {gpus}" if profile.gpus_per_node else "needs a node"
    free = [each.free for each in shortage.all_refused if each.filter is Filter.GPUS]
    return f"{needs}, {max(free)} free" if free else f"{needs}, none takes it"


def _tell_nodes(refused: Sequence[Refused]) -> str:
    if not refused:
        return "there are no nodes"
    if len(refused) <= _NAMED:
        return ", ".join(f"{each.node} {_cut(each.reason, 120)}" for each in refused)
    parts = [_count(kind, those) for kind in Filter if (those := [each for each in refused if each.filter is kind])]
    return f"of {len(refused)} nodes {', '.join(parts)}"


def _count(kind: Filter, refused: Sequence[Refused]) -> str:
    if kind is Filter.GPUS:
        most = max(refused, key=lambda each: each.free)
        return f"{len(refused)} {kind.value} (most: {most.free} on {most.node})"
    if kind is Filter.DRAINING:
        named = ", ".join(each.node for each in refused[:_NAMED]) + (", …" if len(refused) > _NAMED else "")
        return f"{len(refused)} {kind.value} ({named})"
    first = refused[0]
    return f"{len(refused)} {kind.value} ({first.node} {_cut(first.reason, 80)})"


def _tell_fabrics(shortage: Shortage) -> str:
    """`ib-a has 1 (gpu-03 is lost), ib-b has none`."""
    refused = {each.node: each for each in shortage.all_refused}
    fabrics = _members(shortage, refused)
    if not fabrics:
        return f"no node is on one: {_tell_nodes(list(refused.values()))}" if refused else "there are no nodes"
    best = sorted(fabrics, key=lambda name: (-len(_fit(name, shortage)), name))
    parts = [_tell_fabric(name, fabrics[name], shortage) for name in best[:_NAMED]]
    more = len(best) - _NAMED
    return ", ".join(parts) + (f", {more} more fabrics have no more" if more > 0 else "")


def _members(shortage: Shortage, refused: Mapping[str, Refused]) -> dict[str, list[Refused]]:
    """By fabric, the nodes that state it and cannot take a shard."""
    fabrics: dict[str, list[Refused]] = {build[0]: [] for build in shortage.pools}
    for room in shortage.rooms:
        for fabric in room.node.facts.fabrics if room.node.facts else ():
            those = fabrics.setdefault(fabric.name, [])
            if room.node.name in refused:
                those.append(refused[room.node.name])
    return fabrics


def _tell_fabric(name: str, refused: Sequence[Refused], shortage: Shortage) -> str:
    fit = _fit(name, shortage)
    builds = {build: nodes for build in shortage.pools if (nodes := [node for node in fit if fit[node] == build])}
    has = f"{name} has {len(fit) or 'none'}"
    if len(builds) > 1:
        return f"{has}, of {len(builds)} engine builds ({', '.join(_tell_build(*item) for item in builds.items())})"
    if len(refused) < _NAMED:
        notes = [f"{each.node} {_cut(each.reason, 60)}" for each in refused]
    else:
        counts = Counter(each.filter for each in refused)
        notes = [f"{counts[kind]} {kind.value}" for kind in Filter if counts[kind]]
    return f"{has} ({', '.join(notes)})" if notes else has


def _fit(fabric: str, shortage: Shortage) -> dict[str, Build]:
    """The nodes of a fabric that have room, by name, each with its build."""
    found = {
        node: build
        for build, pool in shortage.pools.items()
        if build[0] == fabric
        for node in pool.fit
        if node not in shortage.never
    }
    return dict(sorted(found.items()))


def _tell_build(build: Build, nodes: Sequence[str]) -> str:
    _, version, digest = build
    help_text = f" with help {digest[:8]}" if digest else ""
    return f"{version or 'no version'}{help_text} on {nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"

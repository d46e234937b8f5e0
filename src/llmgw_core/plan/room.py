"""What is free on the nodes, as placing goes on.

In: the nodes, and the assignments that hold something there.  Out: free GPUs and ports; `take` makes them fewer.
Rules: a GPU is whole or nobody's; what an assignment holds is taken until its last process is gone, and so is what a
node reports that a stale shard may hold, so that no GPU and no port is ever promised twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from llmgw_core.model.catalog import Profile
from llmgw_core.model.launch import Launch, Place
from llmgw_core.model.node import EngineFound, Gpu, NodeFacts
from llmgw_core.model.shard import ShardStatus
from llmgw_core.plan.port import RENDEZVOUS_STEP, rendezvous_port, serve_port
from llmgw_core.plan.sighting import Stale
from llmgw_core.plan.world import ObservedNode


@define
class Room:
    """One node."""

    node: ObservedNode
    gpus: set[str] = field(factory=set)
    """Taken."""
    ports: set[int] = field(factory=set)
    """Taken."""
    shards: int = 0
    """How many are placed here."""
    models: dict[str, int] = field(factory=dict)
    """How many of each model."""
    stuck: set[str | int] = field(factory=set)
    """GPUs and ports that are taken whatever is given back."""
    _whole: dict[int, tuple[str, ...]] = field(factory=dict)
    _engines: dict[str, EngineFound] = field(factory=dict)
    _free: dict[int, int] = field(factory=dict)
    """By least memory, how many are free, as far as it was counted since the last change."""

    def whole_gpus(self, least_mib: int) -> tuple[str, ...]:
        """Those that could be given to somebody, free or not, in the order of their indices."""
        found = self._whole.get(least_mib)
        if found is None:
            found = self._whole[least_mib] = _whole_gpus(self.node.facts, least_mib)
        return found

    def free_gpus(self, least_mib: int) -> list[str]:
        whole = self.whole_gpus(least_mib)
        return [gpu for gpu in whole if gpu not in self.gpus] if self.gpus else list(whole)

    def count_free(self, profile: Profile) -> int:
        """GPUs that would do for a profile; 0 where it takes none."""
        if not profile.gpus_per_node:
            return 0
        least = profile.min_gpu_memory_mib
        free = self._free.get(least)
        if free is None:
            free = self._free[least] = len(self.free_gpus(least))
        return free

    def engine(self, name: str) -> EngineFound | None:
        """One that can be run."""
        if not self._engines and self.node.facts is not None:
            able = [each for each in self.node.facts.engines if each.executable]
            self._engines.update({each.engine: each for each in reversed(able)})
        return self._engines.get(name)

    def lacks_ports(self, facts: NodeFacts, group: bool) -> str:
        """Which range has nothing left; empty while both have."""
        serve, meet = facts.serve_ports, facts.rendezvous_ports
        if len(self.ports) * RENDEZVOUS_STEP < min(serve.last - serve.first, meet.last - meet.first):
            return ""  # so few cannot fill a range
        if serve_port(serve, self.ports, 1) is None:
            return str(serve)
        return str(meet) if group and rendezvous_port(meet, self.ports, 1) is None else ""

    def take(self, place: Place, model: str) -> None:
        self._free.clear()
        self.gpus.update(place.gpus)
        self.ports.add(place.port)
        self.shards += 1
        self.models[model] = self.models.get(model, 0) + 1

    def give_back(self, place: Place, model: str) -> None:
        self._free.clear()
        self.gpus.difference_update(gpu for gpu in place.gpus if gpu not in self.stuck)
        self.ports.difference_update({place.port} - self.stuck)
        self.shards -= 1
        self.models[model] -= 1

    def see(self, status: ShardStatus) -> None:
        """What the node reports itself."""
        if status.port:
            self.ports.add(status.port)
        if status.phase.holds_gpus:
            self._free.clear()
            self.gpus.update(status.gpus)


@define
class Rooms:
    """All nodes, by name in order."""

    by_name: dict[str, Room]
    changed: list[str] = field(factory=list)
    """Names of nodes in the order in which something was taken there."""
    strangers: dict[str, set[str]] = field(factory=dict)
    """By replica, the nodes on which a superseded shard of it still is."""

    def take(self, launch: Launch) -> None:
        for place in launch.places:
            room = self.by_name.get(place.node)
            if room is not None:
                room.take(place, launch.offer.model)
                self.changed.append(place.node)
        if launch.rendezvous_port is not None:
            head = self.by_name.get(launch.places[0].node)
            if head is not None:
                head.ports.add(launch.rendezvous_port)

    def count_model(self, launch: Launch, more: int) -> None:
        """Its nodes have so many more of its model; nothing else is taken."""
        for place in launch.places:
            room = self.by_name.get(place.node)
            if room is not None:
                room.models[launch.offer.model] += more
                self.changed.append(place.node)

    def give_back(self, launch: Launch) -> None:
        """As if nothing of it were left; of what was taken."""
        for place in launch.places:
            room = self.by_name.get(place.node)
            if room is not None:
                room.give_back(place, launch.offer.model)
                self.changed.append(place.node)
        if launch.rendezvous_port is not None:
            head = self.by_name.get(launch.places[0].node)
            if head is not None:
                head.ports.difference_update({launch.rendezvous_port} - head.stuck)


def survey(nodes: Mapping[str, ObservedNode], launches: Iterable[Launch], stale: Iterable[Stale]) -> Rooms:
    """What the launches leave free, beside what is stale."""
    rooms = Rooms({name: Room(nodes[name]) for name in sorted(nodes)})
    for launch in launches:
        rooms.take(launch)
    for room in rooms.by_name.values():
        if room.node.facts is not None:
            room.ports.update(room.node.facts.busy_ports)
            room.gpus.update(room.node.facts.stray_gpus)
            room.stuck.update(room.node.facts.stray_gpus)
            room.stuck.update(room.node.facts.busy_ports)
        for status in room.node.shards or ():
            room.see(status)
    for each in stale:
        rooms.strangers.setdefault(each.status.replica, set()).add(each.node)
        rooms.by_name[each.node].stuck.update((*each.status.gpus, each.status.port))
    rooms.changed.clear()
    return rooms


def _whole_gpus(facts: NodeFacts | None, least_mib: int) -> tuple[str, ...]:
    if facts is None:
        return ()
    fit = [gpu for gpu in facts.gpus.gpus if _is_whole(gpu) and (gpu.memory_total_mib or 0) >= least_mib]
    return tuple(gpu_name(gpu) for gpu in sorted(fit, key=lambda gpu: (gpu.index is None, gpu.index or 0)))


def _is_whole(gpu: Gpu) -> bool:
    return not gpu.mig and not gpu.trouble


def gpu_name(gpu: Gpu) -> str:
    return gpu.uuid if gpu.uuid is not None else str(gpu.index)

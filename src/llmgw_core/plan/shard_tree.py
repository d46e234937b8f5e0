"""Which processes belong to a shard.

In: the processes of a machine, what is known of the shard.  Out: its members.  Pure.
Rules: names count for nothing, since engines rewrite their titles, and with them what /proc shows of their environment;
a member is what descends from the shard's reaper or from another member, what carries its marker, and what is in a
session that one of its processes leads or led; a pid without its start time is nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from llmgw_core.model.replica import frozen_mapping


@frozen
class ProcessId:
    """A process for as long as the machine runs: a pid alone is given to others later."""

    pid: int
    start: int
    """In clock ticks since the machine's start."""


@frozen
class Process:
    pid: int
    start: int
    parent: int
    session: int
    state: str
    name: str = ""
    marker: str = ""
    """As in its environment; empty where there is none, or where it cannot be read any more."""

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)

    @property
    def lives(self) -> bool:
        return self.state not in "ZXx"

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name})"


@frozen
class Kinship:
    """What is known of a shard's processes."""

    marker: str
    reaper: ProcessId | None = None
    fronts: Mapping[str, ProcessId] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By name, the processes that were started; each leads a session."""
    seen: frozenset[ProcessId] = frozenset()
    """Members that were found before, and may have lost everything that shows it."""


def members(table: Mapping[int, Process], kin: Kinship) -> tuple[Process, ...]:
    """Its living processes, in the order of their pids; without the reaper, which ends by itself."""
    family = _closure(table, _seeds(table, kin))
    reaper = kin.reaper.pid if kin.reaper is not None and _is(table, kin.reaper) else 0
    return tuple(table[pid] for pid in sorted(family) if pid != reaper and table[pid].lives)


def branch(table: Mapping[int, Process], front: ProcessId) -> frozenset[int]:
    """The pids that a started process, its session and their descendants have."""
    led = {each.pid for each in table.values() if _led_by(table, each, front)}
    return frozenset(_closure(table, {*led, *([front.pid] if _is(table, front) else [])}))


def _seeds(table: Mapping[int, Process], kin: Kinship) -> Iterator[int]:
    known = [*kin.fronts.values(), *kin.seen, *([kin.reaper] if kin.reaper else [])]
    yield from (each.pid for each in known if _is(table, each))
    for each in table.values():
        if each.marker == kin.marker or any(_led_by(table, each, front) for front in kin.fronts.values()):
            yield each.pid


def _is(table: Mapping[int, Process], known: ProcessId) -> bool:
    return known.pid in table and table[known.pid].start == known.start


def _led_by(table: Mapping[int, Process], each: Process, front: ProcessId) -> bool:
    """Whether it is in the session that `front` leads, or led: its pid is nobody else's while the session lasts."""
    leader = table.get(front.pid)
    return each.session == front.pid and each.start >= front.start and (leader is None or leader.start == front.start)


def _closure(table: Mapping[int, Process], seeds: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for each in table.values():
        children.setdefault(each.parent, []).append(each.pid)
    family: set[int] = set()
    waiting = list(seeds)
    while waiting:
        pid = waiting.pop()
        if pid not in family and pid in table:
            family.add(pid)
            waiting += children.get(pid, ())
    return family

"""How a shard that was started is doing, from what was seen of it.

In: what was known, one look (a probe, its listener, its metrics), the time.  Out: what is known now, or why it has
failed.  Pure.
Rules: what never answered starts, however long that takes (the start deadline is the replica's); `misses` probes in a
row make a ready shard unready; an answer counts only when the process that listens is ours; a shard that is unready
without a break, or has requests running and does not move, for `stall_s` has failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from llmgw_core.engine.health import Failure, FailureKind, Health, Phase, Progress
from llmgw_core.model.catalog import HealthTimings
from llmgw_core.model.shard import ShardPhase

LEAST_S = 0.1
QUICK_PART = 0.1
"""While it starts, the next probe comes after this part of the time that it has taken so far."""
PROGRESS_EVERY_S = 10.0


@frozen
class Movement:
    """The metrics of one look: requests that are being worked on, and the sum of what moves."""

    running: float
    moved: float


@frozen
class Watched:
    """A shard as it was seen up to now. Times are the caller's clock's."""

    begun: float
    phase: ShardPhase = ShardPhase.STARTING
    reason: str = ""
    seen_ready: bool = False
    misses: int = 0
    unready_since: float | None = None
    moved: float | None = None
    still_since: float | None = None
    """Since when requests run and nothing moves."""


def after_probe(was: Watched, health: Health, stranger: str, timings: HealthTimings, now: float) -> Watched:
    """`stranger` says who else listens at its port, or that nobody of its does; empty: the listener is ours."""
    if health.phase is Phase.READY and not stranger:
        return evolve(was, phase=ShardPhase.READY, reason="", seen_ready=True, misses=0, unready_since=None)
    reason = stranger if health.phase is Phase.READY else health.reason
    if not was.seen_ready:
        return evolve(was, phase=ShardPhase.STARTING, reason=reason)
    missed = evolve(was, misses=was.misses + 1)
    if missed.misses < timings.misses and was.phase is ShardPhase.READY:
        return missed
    since = now if was.unready_since is None else was.unready_since
    return evolve(missed, phase=ShardPhase.UNREADY, reason=reason, unready_since=since)


def after_progress(was: Watched, seen: Movement | None, now: float) -> Watched:
    """`None`: the metrics could not be had, which proves nothing."""
    if seen is None:
        return was
    still = seen.running > 0 and was.moved == seen.moved
    since = (now if was.still_since is None else was.still_since) if still else None
    return evolve(was, moved=seen.moved, still_since=since)


def failure_of(health: Health | None, watched: Watched, timings: HealthTimings, now: float) -> Failure | None:
    if health is not None and health.phase is Phase.FAILED:
        return Failure(FailureKind.CRASHED, health.reason or "the engine says that it has failed")
    if watched.unready_since is not None and now - watched.unready_since >= timings.stall_s:
        why = watched.reason or "no reason given"
        return Failure(FailureKind.STALLED, f"stalled: unready for {timings.stall_s:g} s: {why}")
    if watched.still_since is not None and now - watched.still_since >= timings.stall_s:
        return Failure(FailureKind.STALLED, f"stalled: requests run, and nothing moved for {timings.stall_s:g} s")
    return None


def next_probe_s(watched: Watched, timings: HealthTimings, now: float) -> float:
    """How long to wait; quicker at first, so that an engine that starts quickly is ready quickly."""
    if watched.seen_ready:
        return timings.probe_every_s
    return min(timings.probe_every_s, max(LEAST_S, (now - watched.begun) * QUICK_PART))


def next_progress_s(timings: HealthTimings) -> float:
    return min(PROGRESS_EVERY_S, timings.stall_s / 4)


def read_movement(text: str, progress: Progress) -> Movement | None:
    """From metrics in Prometheus' text format, summed over all label sets; `None` where a gauge is missing."""
    sums = _sums(text, (*progress.running, *progress.counters))
    if not any(name in sums for name in progress.running) or not any(name in sums for name in progress.counters):
        return None
    return Movement(_total(sums, progress.running), _total(sums, progress.counters))


def _total(sums: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(sums.get(name, 0.0) for name in names)


def _sums(text: str, names: Sequence[str]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            words = line.rpartition("}")[2].split() if "{" in line else line.split()[1:]
            try:
                sums[name] = sums.get(name, 0.0) + float(words[0])
            except (IndexError, ValueError):
                continue
    return sums

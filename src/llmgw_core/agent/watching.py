"""Watches a shard that was started, until it fails: its processes, its answers, its listener, its metrics.

Rules: a process that ends is a failure, whatever its code; an answer counts only while the front process lives and what
listens is the shard's; the decisions are `plan.health_watch`'s.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, evolve, field

from llmgw_core.agent.asking import METRICS_BYTES, ask
from llmgw_core.agent.family import ENGINE
from llmgw_core.agent.ports import holds_listener, judge_listener
from llmgw_core.agent.processes import lives
from llmgw_core.agent.reaper_link import Held, ReaperGone
from llmgw_core.engine import Failure, Health, Phase, Probe, ReplyKind, Shard
from llmgw_core.model.catalog import HealthTimings
from llmgw_core.model.shard import ShardPhase
from llmgw_core.net.racing import first
from llmgw_core.plan.health_watch import (
    PROGRESS_EVERY_S,
    Movement,
    Watched,
    after_probe,
    after_progress,
    failure_of,
    next_probe_s,
    next_progress_s,
    read_movement,
)

if TYPE_CHECKING:
    from llmgw_core.agent.attempt import Attempt

FAMILY_EVERY_S = 60.0
"""How often all of a shard's processes are looked at, beside its front process."""


@define(eq=False)
class Watch:
    attempt: Attempt
    shard: Shard
    _stranger: str = ""
    _listener_at: float = float("-inf")
    _family_at: float = float("-inf")
    _lost: str = ""
    _state_at: float = float("-inf")
    _progress_at: float = field(factory=trio.current_time)

    async def run(self) -> Held | Failure:
        """The process that ended, or why the shard has failed; raises `ReaperGone`."""
        link = self.attempt.family.link
        if link is None:
            raise ReaperGone("the reaper of the shard is gone")
        ends = [partial(link.wait_ended, name) for name in self.attempt.kept.fronts]
        return await first(*ends, self._ask_again_and_again)

    @property
    def _timings(self) -> HealthTimings:
        return self.attempt.launch.offer.profile.health

    async def _ask_again_and_again(self) -> Failure:
        engines, timings = self.attempt.node.engines, self._timings
        probe = engines.health_probe(self.shard)
        watched = self._begin()
        while True:
            await trio.sleep(next_probe_s(watched, timings, trio.current_time()))
            health = await self._health(probe, watched)
            stranger = await self._whose_listener(probe, health, watched)
            if not lives(self.attempt.kept.fronts[ENGINE]):
                continue  # whoever waits for its end says why
            watched = after_probe(watched, health, stranger, timings, trio.current_time())
            watched = await self._movement(probe, watched)
            failure = failure_of(health, watched, timings, trio.current_time())
            if failure is not None:
                return failure
            await self.attempt.note_watched(watched, await self._lost_output())

    def _begin(self) -> Watched:
        kept = self.attempt.kept
        seen = kept.phase in (ShardPhase.READY, ShardPhase.UNREADY)
        phase = kept.phase if seen else ShardPhase.STARTING
        self.attempt.show(phase, "" if phase is ShardPhase.READY else "its engine has been started")
        return Watched(trio.current_time(), phase, seen_ready=kept.seen_ready)

    async def _health(self, probe: Probe | None, watched: Watched) -> Health:
        if probe is None:
            return Health(Phase.READY)
        reply = await ask(probe.endpoint, probe.path, probe.timeout_s, api_key=probe.api_key)
        return self.attempt.node.engines.read_health(self.shard, evolve(reply, seen_ready=watched.seen_ready))

    async def _whose_listener(self, probe: Probe | None, health: Health, watched: Watched) -> str:
        """Who else listens where the shard should; a worker is looked at only where its head needs it listening."""
        port = self.shard.slot.listen.port if probe is None else probe.endpoint.port
        if health.phase is not Phase.READY or (probe is None and not self.attempt.kept.workers_first):
            return ""
        now = trio.current_time()
        if watched.phase is not ShardPhase.READY or now - self._listener_at >= PROGRESS_EVERY_S:
            self._stranger = await self._judge_listener(port, now)
            self._listener_at = now
        return self._stranger

    async def _judge_listener(self, port: int, now: float) -> str:
        """A look at every process of the machine costs much more than one at the front process, which mostly does."""
        front = self.attempt.kept.fronts[ENGINE]
        if now - self._family_at < FAMILY_EVERY_S:
            holds = partial(holds_listener, port, front.pid)
            if await trio.to_thread.run_sync(holds, abandon_on_cancel=True):
                return ""
        table, family = await self.attempt.family.look()
        self._family_at = now
        judge = partial(judge_listener, port, table, family)
        stranger, _ = await trio.to_thread.run_sync(judge, abandon_on_cancel=True)
        return stranger

    async def _movement(self, probe: Probe | None, watched: Watched) -> Watched:
        now = trio.current_time()
        due = now - self._progress_at >= next_progress_s(self._timings)
        if probe is None or probe.progress is None or not watched.seen_ready or not due:
            return watched
        self._progress_at = now
        return after_progress(watched, await self._read_movement(probe), trio.current_time())

    async def _lost_output(self) -> str:
        now, link = trio.current_time(), self.attempt.family.link
        if link is not None and now - self._state_at >= PROGRESS_EVERY_S:
            self._state_at = now
            self._lost = (await link.state()).lost
        return self._lost

    async def _read_movement(self, probe: Probe) -> Movement | None:
        assert probe.progress is not None  # noqa: S101
        path, key = probe.progress.path, probe.api_key
        reply = await ask(probe.endpoint, path, probe.timeout_s, api_key=key, most=METRICS_BYTES)
        return read_movement(reply.body, probe.progress) if reply.kind is ReplyKind.ANSWERED else None

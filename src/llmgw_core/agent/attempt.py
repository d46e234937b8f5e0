"""One shard of one attempt on this node: from its first order until nothing of it is left.

One task; what it is wanted to do only ever grows (prepare, run, stop), so the latest order wins, and a stop wins over
everything. A failure is told at once; then the rest of its processes are ended, like after a stop; a failed one stays
in the list until it is told to stop.
Rule: an agent that is ended leaves the shard as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

import trio
from attrs import define, evolve, field

from llmgw_core.agent.family import ENGINE, Family
from llmgw_core.agent.in_flight import wait_until_idle
from llmgw_core.agent.node import Node
from llmgw_core.agent.preparing import Prepared, Trouble, prepare, shard_of
from llmgw_core.agent.reaper_link import Held, ReaperGone
from llmgw_core.agent.shard_files import Kept
from llmgw_core.agent.starting import Starting, attach, find_reaper
from llmgw_core.agent.watching import Watch
from llmgw_core.engine import Exit, Failure, FailureKind, LaunchOrder, Probe, Shard, Stop
from llmgw_core.errors import LlmgwError
from llmgw_core.model.launch import Launch, RunShard, Stage
from llmgw_core.model.shard import ShardFailure, ShardPhase, ShardStatus
from llmgw_core.plan.exit_words import exit_text, last_lines, without_key
from llmgw_core.plan.health_watch import Watched
from llmgw_core.plan.shard_tree import Kinship
from llmgw_core.plan.sidecar import placed_profile

LASTING_READY_S = 300.0
"""Ready for so long, a shard has come out of its loop of failures."""
FAILED_GRACE_S = 5.0
"""For each step of the end of a shard that failed: its requests are lost, and its replica is to be rebuilt."""
END_AGAIN_S = 1.0
NOTE_S = 2.0
"""How long a stop waits for its reaper to say what has ended by itself before."""
ORPHAN_GRACE_S = 3.0
"""What processes may take that outlive the engine's front process after a stop."""
_log = logging.getLogger("llmgw.agent")


class Wanted(IntEnum):
    PREPARED = 0
    RUNNING = 1
    GONE = 2


_ENDING = (ShardPhase.STOPPING, ShardPhase.FAILED)
WANTED = {Stage.PREPARE: Wanted.PREPARED, Stage.RUN: Wanted.RUNNING}


@define(eq=False)
class Attempt:
    node: Node
    launch: Launch
    rank: int
    changed: Callable[[], None]
    kept: Kept
    adopted: bool = False
    """Whether an earlier agent began it."""
    wanted: Wanted = Wanted.PREPARED
    reason: str = ""
    gone: trio.Event = field(factory=trio.Event)
    family: Family = field(init=False)
    _more_wanted: trio.Event = field(factory=trio.Event)
    _work: trio.CancelScope = field(factory=trio.CancelScope)
    _ready_since: float = field(factory=trio.current_time)
    """Infinite, once it has lasted."""

    def __attrs_post_init__(self) -> None:
        kin = Kinship(self.marker, self.kept.reaper, self.kept.fronts)
        self.family = Family(self.node, self.directory, kin, tell=self._say)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.launch.replica, self.rank, self.launch.generation

    @property
    def directory(self) -> Path:
        return self.node.files.directory(*self.key)

    @property
    def marker(self) -> str:
        return f"{self.launch.shard_id(self.rank)}@{self.launch.generation}"

    @property
    def phase(self) -> ShardPhase:
        return self.kept.phase

    def status(self) -> ShardStatus:
        place = self.launch.places[self.rank]
        engine = self.kept.fronts.get(ENGINE)
        return ShardStatus(
            replica=self.launch.replica,
            generation=self.launch.generation,
            rank=self.rank,
            phase=self.kept.phase,
            reason=self.reason,
            failure=self.kept.failure,
            gpus=place.gpus,
            port=place.port,
            pid=engine.pid if engine is not None else 0,
            argv=self.kept.argv,
            engine_version=self.kept.engine_version,
            help_digest=self.kept.help_digest,
        )

    def want(self, wanted: Wanted) -> None:
        if wanted > self.wanted:
            self.wanted = wanted
            self._more_wanted.set()
            self._more_wanted = trio.Event()
            if wanted is Wanted.GONE:
                self._work.cancel()
                if self.kept.failure is None:
                    self.show(ShardPhase.STOPPING, "it was told to stop")

    def renew(self, launch: Launch) -> None:
        """The same launch, of which only how patient one is may be another: it counts from the next look on."""
        if launch != self.launch:
            self.launch = launch
            self.kept = evolve(self.kept, order=evolve(self.kept.order, launch=launch))

    def stop(self, in_flight_s: float) -> None:
        """To be gone; said again, the shorter wait for its requests in flight counts."""
        until = self.node.now() + in_flight_s
        if self.wanted is Wanted.GONE:
            until = min(until, self.kept.in_flight_until)
        self.kept = evolve(self.kept, in_flight_until=until)
        self.want(Wanted.GONE)

    def show(self, phase: ShardPhase, reason: str = "") -> None:
        """Once it is to be gone, a step that is not cancelled yet shows nothing any more."""
        if self.wanted is Wanted.GONE and phase not in _ENDING:
            return
        if (phase, reason) != (self.kept.phase, self.reason):
            self.kept, self.reason = evolve(self.kept, phase=phase), reason
            self.changed()

    def _say(self, reason: str) -> None:
        self.show(self.kept.phase, reason)

    async def live(self) -> None:
        """Until it was told to stop and every process of it is gone."""
        async with trio.open_nursery() as nursery:
            with self._work:
                await self._fail(await self._go_as_wanted(nursery))
            await self._end_for_sure(nursery)
            if self.kept.failure is not None:
                self.show(ShardPhase.FAILED, self.kept.failure.reason)
                await self.save()
                await self._until(Wanted.GONE)
            nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._forget)
        self.gone.set()

    async def save(self) -> None:
        """A disk that takes nothing is told; what runs goes on."""
        try:
            await trio.to_thread.run_sync(self.node.files.write, self.directory, self.kept)
        except OSError as error:
            _log.error("shard not kept", extra={"shard": self.marker, "reason": error.strerror or str(error)})

    async def _until(self, wanted: Wanted) -> None:
        while self.wanted < wanted:
            await self._more_wanted.wait()

    async def _go_as_wanted(self, nursery: trio.Nursery) -> ShardFailure:
        """Why it cannot go on; returns for no other reason."""
        try:
            if not self.adopted:
                self.show(ShardPhase.PREPARING, "earlier attempts must be gone first")
            if self.adopted and self.kept.failure is not None:
                return self.kept.failure
            if self.adopted and await attach(self, nursery):
                shard = self._asked_shard()
            else:
                shard = await self._bring_up(nursery)
            return await self._watch(shard)
        except Trouble as trouble:
            return self.failed(trouble.failure, trouble.exit, trouble.tail)
        except ReaperGone:
            return self.failed(Failure(FailureKind.KILLED, "its reaper was killed"))
        except LlmgwError as error:
            return self.failed(Failure(FailureKind.BAD_CONFIGURATION, str(error)))
        except OSError as error:
            # The machine's trouble of the moment (a full disk, no descriptors), and no word against the command.
            where = error.filename or self.directory
            return self.failed(Failure(FailureKind.CRASHED, f"{where}: {error.strerror or error}"))
        except Exception as error:
            _log.exception("shard failed by a fault of llmgw", extra={"shard": self.marker})
            return self.failed(Failure(FailureKind.CRASHED, f"a fault of llmgw: {type(error).__name__}: {error}"))

    async def _bring_up(self, nursery: trio.Nursery) -> Shard:
        self.show(ShardPhase.PREPARING, "it is being checked")
        self.node.lent_ports.difference_update(self.kept.sidecar_ports.values())
        await trio.to_thread.run_sync(self._make_room)
        inspected = await self.node.inventory.now(self.launch.offer.profile.engine)
        # Before it is judged: who hears of a refusal hears which engine it was, and that another one is not refused.
        version, digest = inspected.found.version, inspected.found.help_digest
        self.kept = evolve(self.kept, engine_version=version, help_digest=digest)
        prepared = await prepare(self.node, self.launch, self.rank, self.directory, inspected)
        self._take(prepared)
        self.show(ShardPhase.PREPARED)
        await self.save()
        await self._until(Wanted.RUNNING)
        self.show(ShardPhase.STARTING, "it is being started")
        await Starting(self, prepared, nursery).run()
        return prepared.shard

    def _make_room(self) -> None:
        self.node.files.make(self.directory)
        self.node.files.write_highest()
        self.node.files.write_key(self.directory, self.launch.key)
        self.node.files.write(self.directory, self.kept)

    def _take(self, prepared: Prepared) -> None:
        command = prepared.command
        self.kept = evolve(
            self.kept,
            argv=command.argv,
            stop=command.stop,
            workers_first=command.launch_order is LaunchOrder.WORKERS_FIRST,
            sidecar_ports=prepared.sidecar_ports,
            boot_id=self.node.boot_id,
        )

    def _asked_shard(self) -> Shard:
        """As its command was built for; what it is asked with does not depend on the executable."""
        work = str(self.directory / "work")
        profile = placed_profile(self.launch.offer.profile, self.kept.sidecar_ports, work)
        return shard_of(self.launch, self.rank, profile, work, self.kept.argv[:1] or ("engine",))

    async def _watch(self, shard: Shard) -> ShardFailure:
        found = await Watch(self, shard).run()
        return self._explain(found, shard) if isinstance(found, Held) else self.failed(found, tail=await self._tail())

    async def _tail(self) -> str:
        """The engine's last words, while it still runs."""
        with suppress(ReaperGone):
            if self.family.link is not None:
                state = await self.family.link.state()
                return next((each.tail for each in state.processes if each.name == ENGINE), "")
        return ""

    def _explain(self, ended: Held, shard: Shard) -> ShardFailure:
        """Why a process that nobody asked to end did so."""
        how = Exit(ended.code, ended.signal, ended.tail, asked=False, node_rank=self.rank)
        last = last_lines(ended.tail, 1)
        said = f"it ended by itself with {exit_text(how)}" + (f"; its last line: {last}" if last else "")
        failure = Failure(FailureKind.CRASHED, said)
        if ended.name == ENGINE:
            with suppress(LlmgwError):
                failure = self.node.engines.explain_exit(shard.replica.engine, how) or failure
        else:
            failure = evolve(failure, reason=f"sidecar {ended.name}: {said}")
        return self.failed(failure, exit_text(how), ended.tail)

    def failed(self, failure: Failure, exit: str = "", tail: str = "") -> ShardFailure:
        reason, tail = (without_key(each, self.launch.key) for each in (failure.reason, tail))
        return ShardFailure(failure.kind.value, reason, exit, last_lines(tail), self.node.now())

    async def _fail(self, failure: ShardFailure) -> None:
        self.kept = evolve(self.kept, failure=failure)
        self.show(ShardPhase.STOPPING, failure.reason)
        extra = {"shard": self.marker, "kind": failure.kind, "reason": failure.reason, "exit": failure.exit}
        _log.warning("shard failed", extra=extra)
        with trio.CancelScope(shield=True):  # a stop may come in this moment
            await self.save()
            await trio.to_thread.run_sync(self.node.files.keep_failure, *self.key)

    async def _end_for_sure(self, nursery: trio.Nursery) -> None:
        """Whatever the machine lacks for the moment (descriptors, memory): it is tried until nothing is left."""
        while True:
            try:
                return await self._end(nursery)
            except (OSError, LlmgwError) as error:
                _log.error("shard not ended yet", extra={"shard": self.marker, "reason": str(error)})
                self._say(f"its end is tried again: {error}")
                await trio.sleep(END_AGAIN_S)

    async def _end(self, nursery: trio.Nursery) -> None:
        """Nothing of it is left afterwards."""
        begun = self.family.kin.reaper is not None or self.kept.phase.holds_gpus
        if begun:
            if self.family.link is None and self.adopted:
                with suppress(ReaperGone):
                    await find_reaper(self, nursery)
            await self._note_end()
            self.kept = evolve(self.kept, stopping=True)
            await self.save()
            if self.kept.failure is None and self.kept.seen_ready:
                await wait_until_idle(self._probe(), self._in_flight_left_s, self._say)
            hurried = self.kept.failure is not None
            stop = hurry(self.kept.stop, FAILED_GRACE_S) if hurried else self.kept.stop
            await self.family.end(stop, 0.0 if hurried else ORPHAN_GRACE_S)
        self.node.lent_ports.difference_update(self.kept.sidecar_ports.values())

    async def _note_end(self) -> None:
        """What ended by itself has failed, though it was told to stop before that was seen: it may be the cause."""
        if self.kept.failure is not None or self.kept.stopping or self.family.link is None:
            return
        with suppress(ReaperGone), trio.move_on_after(NOTE_S):
            state = await self.family.link.state()
            ended = next((each for each in state.processes if not each.running), None)
            if ended is not None:
                await self._fail(self._explain(ended, self._asked_shard()))

    def _probe(self) -> Probe | None:
        with suppress(LlmgwError):
            return self.node.engines.health_probe(self._asked_shard())
        return None

    def _in_flight_left_s(self) -> float:
        return self.kept.in_flight_until - self.node.now()

    async def note_watched(self, watched: Watched, lost: str) -> None:
        """`lost` says what of its output the disk did not take."""
        changed = watched.phase is not self.phase
        self.kept = evolve(self.kept, seen_ready=watched.seen_ready)
        self.show(watched.phase, watched.reason or lost)
        if changed:
            self._ready_since = trio.current_time()
            await self.save()
        elif self.phase is ShardPhase.READY and trio.current_time() - self._ready_since > LASTING_READY_S:
            self._ready_since = float("inf")
            await trio.to_thread.run_sync(self.node.files.drop_failure, self.launch.replica, self.rank)

    def _forget(self) -> None:
        self.node.files.forget(self.directory)
        self.node.files.prune(self.launch.replica, self.rank)


def hurry(stop: Stop, most_s: float) -> Stop:
    return evolve(stop, steps=tuple(evolve(step, wait_s=min(step.wait_s, most_s)) for step in stop.steps))


def begin(node: Node, order: RunShard, changed: Callable[[], None]) -> Attempt:
    kept = Kept(order=order, phase=ShardPhase.PREPARING)
    attempt = Attempt(node, order.launch, order.rank, changed, kept)
    attempt.want(WANTED[order.stage])
    return attempt


def adopt(node: Node, kept: Kept, changed: Callable[[], None]) -> Attempt:
    """What an earlier agent began, and had not seen gone."""
    if kept.boot_id != node.boot_id:
        kept = evolve(kept, reaper=None, fronts={})  # these pids are others' now
    attempt = Attempt(node, kept.order.launch, kept.order.rank, changed, kept, adopted=True)
    if kept.failure is not None:
        attempt.reason = kept.failure.reason
    started = kept.phase not in (ShardPhase.PREPARING, ShardPhase.PREPARED)
    attempt.wanted = Wanted.RUNNING if started else WANTED[kept.order.stage]
    if kept.stopping and kept.failure is None:
        attempt.want(Wanted.GONE)
    return attempt

"""Brings a prepared shard up: its reaper, its files, its sidecars, its engine; or finds it again after a restart.

Rules: every step is on disk before the next begins, so that whoever comes after knows what to look for; a sidecar that
ends or is not ready in its time fails the shard by its name; the ports are looked at once more before each start.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, evolve

from llmgw_core.agent.asking import ask, takes_connection
from llmgw_core.agent.family import ENGINE
from llmgw_core.agent.preparing import Prepared, Trouble, check_free, check_ports
from llmgw_core.agent.reaper_link import Held, NotStarted, ReaperGone, ReaperLink, connect_reaper
from llmgw_core.engine import Command, Endpoint, Exit, Failure, FailureKind, Secret, Stop
from llmgw_core.examine.process import child_environment
from llmgw_core.model.launch import Stage
from llmgw_core.model.shard import ShardPhase
from llmgw_core.net.racing import first
from llmgw_core.plan.exit_words import exit_text
from llmgw_core.plan.shard_tree import Kinship
from llmgw_core.plan.sidecar import PlacedSidecar

if TYPE_CHECKING:
    from llmgw_core.agent.attempt import Attempt

CONNECT_S = 20.0
PAUSE_S = 0.02
READY_EVERY_S, READY_TIMEOUT_S = 0.1, 3.0
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
_HTTP_OK = 200


@define(eq=False)
class Starting:
    attempt: Attempt
    prepared: Prepared
    nursery: trio.Nursery

    async def run(self) -> None:
        """Returns when the engine runs; raises `Trouble` and others where it does not."""
        await self._launch_reaper()
        work = self.attempt.directory / "work"
        await trio.to_thread.run_sync(make_files, self.prepared.command, work)
        for name, sidecar in self.prepared.sidecars.items():
            await self._start_sidecar(name, sidecar)
        await self._start_engine()

    async def _launch_reaper(self) -> None:
        attempt, node = self.attempt, self.attempt.node
        attempt.kept = evolve(attempt.kept, order=evolve(attempt.kept.order, stage=Stage.RUN))
        # Not `save`: what the next agent would not know of must not be started.
        await trio.to_thread.run_sync(node.files.write, attempt.directory, attempt.kept)
        source = await trio.to_thread.run_sync(node.files.write_reaper, attempt.directory)
        env = {"PATH": os.environ.get("PATH", os.defpath), **node.marks(attempt.marker)}
        await node.housing.launch(attempt.directory, source, env)
        await take_link(attempt, await _connect_patiently(attempt.directory), self.nursery)
        await attempt.save()

    async def _start_sidecar(self, name: str, sidecar: PlacedSidecar) -> None:
        attempt = self.attempt
        attempt.show(ShardPhase.STARTING, f"sidecar {name} is being started")
        if sidecar.port is not None:
            check = partial(check_free, attempt.node, [sidecar.port], f"sidecar {name}: ")
            await trio.to_thread.run_sync(check)
        gpus = {key: value for key, value in self.prepared.command.env.items() if key == GPU_VARIABLE}
        marks = attempt.node.marks(attempt.marker)
        env = {**attempt.node.environment(attempt.marker), **gpus, **sidecar.env, **marks}
        await self._start(name, sidecar.command, env, prefix=f"[{name}] ")
        with trio.move_on_after(sidecar.ready_within_s):
            ended = await first(
                partial(self._link.wait_ended, name), partial(_wait_ready, sidecar, self._work_directory)
            )
            if ended is None:
                return
            how = exit_text(Exit(ended.code, ended.signal))
            raise _trouble(f"sidecar {name} ended before it was ready: {how}", how, ended.tail)
        tails = {each.name: each.tail for each in (await self._link.state()).processes}
        raise _trouble(f"sidecar {name} was not ready within {sidecar.ready_within_s:g} s", "", tails.get(name, ""))

    async def _start_engine(self) -> None:
        attempt, command = self.attempt, self.prepared.command
        attempt.show(ShardPhase.STARTING, "its engine is being started")
        await trio.to_thread.run_sync(check_ports, attempt.node, attempt.launch, attempt.rank)
        env = child_environment(command, attempt.node.environment(attempt.marker))
        marks = attempt.node.marks(attempt.marker)
        await self._start(ENGINE, command.argv, {**env, **marks}, ignore_sigpipe=command.ignore_sigpipe)

    async def _start(self, name: str, argv: tuple[str, ...], env: dict[str, str], **more: object) -> None:
        attempt = self.attempt
        try:
            held = await self._link.start(name, argv, env, str(self._work_directory), **more)
        except NotStarted as error:
            what = "its engine" if name == ENGINE else f"sidecar {name}"
            raise Trouble(Failure(FailureKind.BAD_CONFIGURATION, f"{what} could not be started: {error}")) from error
        note_fronts(attempt, (held,))
        await attempt.save()

    @property
    def _work_directory(self) -> Path:
        return self.attempt.directory / "work"

    @property
    def _link(self) -> ReaperLink:
        if self.attempt.family.link is None:
            raise ReaperGone("the reaper of the shard is gone")
        return self.attempt.family.link


async def attach(attempt: Attempt, nursery: trio.Nursery) -> bool:
    """Whether the engine that an earlier agent started is there; if it had not come so far, all begins anew."""
    kept = attempt.kept
    if kept.phase in (ShardPhase.PREPARING, ShardPhase.PREPARED):
        return False
    if kept.boot_id != attempt.node.boot_id:
        raise Trouble(Failure(FailureKind.KILLED, "the machine was restarted"))
    try:
        await find_reaper(attempt, nursery)
    except ReaperGone:
        if kept.reaper is not None:
            raise
    if ENGINE in attempt.family.kin.fronts:
        return True
    await attempt.family.end(Stop())
    attempt.family.kin, attempt.family.link = Kinship(attempt.marker), None
    attempt.kept = evolve(attempt.kept, reaper=None, fronts={})  # it may have been renewed meanwhile
    return False


async def find_reaper(attempt: Attempt, nursery: trio.Nursery) -> None:
    """Attach to the shard's reaper; raises `ReaperGone` where it is not the one that was started."""
    await take_link(attempt, await connect_reaper(attempt.directory), nursery)


async def take_link(attempt: Attempt, link: ReaperLink, nursery: trio.Nursery) -> None:
    nursery.start_soon(link.hear)
    state = await link.state()
    if attempt.kept.reaper not in (None, state.id):
        raise ReaperGone("another process answers at its reaper's socket")
    attempt.family.link = link
    attempt.family.kin = evolve(attempt.family.kin, reaper=state.id)
    attempt.kept = evolve(attempt.kept, reaper=state.id)
    note_fronts(attempt, state.processes)


def note_fronts(attempt: Attempt, started: tuple[Held, ...]) -> None:
    fronts = {**attempt.kept.fronts, **{each.name: each.id for each in started}}
    attempt.kept = evolve(attempt.kept, fronts=fronts)
    attempt.family.kin = evolve(attempt.family.kin, fronts=fronts)


async def _connect_patiently(directory: Path) -> ReaperLink:
    """A unit of systemd's takes a moment until its socket is there."""
    with trio.move_on_after(CONNECT_S):
        while True:
            with suppress(ReaperGone):
                return await connect_reaper(directory)
            await trio.sleep(PAUSE_S)
    raise ReaperGone(f"its reaper did not answer within {CONNECT_S:g} s")


async def _wait_ready(sidecar: PlacedSidecar, work: Path) -> None:
    while not await _is_ready(sidecar, work):  # noqa: ASYNC110 - it is another program's event
        await trio.sleep(READY_EVERY_S)


async def _is_ready(sidecar: PlacedSidecar, work: Path) -> bool:
    if sidecar.ready_file is not None and not await trio.Path(work / sidecar.ready_file).exists():
        return False
    if sidecar.port is None:
        return True
    endpoint = Endpoint("127.0.0.1", sidecar.port)
    if sidecar.ready_path is None:
        return await takes_connection(endpoint, READY_TIMEOUT_S)
    return (await ask(endpoint, sidecar.ready_path, READY_TIMEOUT_S)).status == _HTTP_OK


def _trouble(reason: str, exit: str, tail: str) -> Trouble:
    return Trouble(Failure(FailureKind.CRASHED, reason), exit, tail)


def make_files(command: Command, work: Path) -> None:
    """What the command needs to find."""
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in command.directories:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    for file in command.files:
        os.makedirs(os.path.dirname(file.path), mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(file.path)
        content = file.content.reveal() if isinstance(file.content, Secret) else file.content
        descriptor = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode)
        with open(descriptor, "w", encoding="utf-8") as opened:
            opened.write(content)

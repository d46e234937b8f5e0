"""The processes of one shard: who they are, and their end.

Rules: only members are ever signalled, and each by an identity that no other process has; whoever is asked to end is
given a bounded time; after SIGKILL it is looked again and again until every member is gone, and what does not go is
said.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import trio
from attrs import define, evolve

from llmgw_core.agent.node import Node
from llmgw_core.agent.processes import lives, send_signal, tracks_resources
from llmgw_core.agent.reaper_link import ReaperGone, ReaperLink
from llmgw_core.engine import Stop
from llmgw_core.plan.shard_tree import Kinship, Process, ProcessId, branch, members

ENGINE = "engine"
_Members = Callable[[], Awaitable[tuple[Process, ...]]]
SIDECAR_GRACE_S = 5.0
QUICK_S, SLOW_S = 0.02, 1.0
TRACKER_S = 1.0
"""What Python's resource tracker has, once the others are gone, to remove the shared memory that they leave behind."""
HANGS_AFTER_S = 5.0
"""A killed process that is still there then hangs in the kernel, and people are told."""


@define(eq=False)
class Family:
    node: Node
    directory: Path
    kin: Kinship
    link: ReaperLink | None = None
    tell: Callable[[str], None] = lambda _: None
    """Hears what the end waits for."""

    async def look(self) -> tuple[Mapping[int, Process], tuple[Process, ...]]:
        """All processes of the machine, and the shard's."""
        table = await self.node.processes()
        family = members(table, self.kin)
        self.kin = evolve(self.kin, seen=frozenset(each.id for each in family))
        return table, family

    async def end(self, stop: Stop, orphan_grace_s: float = 0.0) -> None:
        """Returns when every process is gone, the sidecars after the engine, and the reaper at last.

        What the front process leaves behind has the orphans' grace: nobody can ask it to end.
        """
        if self.link is not None and self.link.gone.is_set():
            self.link = None
        if ENGINE in self.kin.fronts:
            for step in stop.steps:
                if not self._front_lives():
                    break
                self.tell(f"{step.signal} was sent, {step.wait_s:g} s to end")
                await self._signal(ENGINE, getattr(signal, step.signal, signal.SIGTERM))
                await self._front_gone_within(step.wait_s)
            if orphan_grace_s:
                await self._gone_within(self._engine, orphan_grace_s)
            await self._kill(self._engine)
        await self._end_sidecars()
        await self._kill(self._all)
        await self._end_reaper()
        await self._kill(self._all)

    def _front_lives(self) -> bool:
        return self.link is not None and ENGINE not in self.link.ended and lives(self.kin.fronts[ENGINE])

    async def _front_gone_within(self, wait_s: float) -> None:
        if self.link is not None:
            with suppress(ReaperGone), trio.move_on_after(wait_s):
                await self.link.wait_ended(ENGINE)

    async def _engine(self) -> tuple[Process, ...]:
        """All that is not a sidecar's: an orphan of the engine is its own."""
        table, family = await self.look()
        sidecars = {pid for name, front in self.kin.fronts.items() if name != ENGINE for pid in branch(table, front)}
        return tuple(each for each in family if each.pid not in sidecars)

    async def _all(self) -> tuple[Process, ...]:
        return (await self.look())[1]

    async def _end_sidecars(self) -> None:
        if await self._all():
            for name in reversed([name for name in self.kin.fronts if name != ENGINE]):
                self.tell(f"sidecar {name} is asked to end")
                await self._signal(name, signal.SIGTERM)
            await self._gone_within(self._all, SIDECAR_GRACE_S)

    async def _signal(self, name: str, number: int) -> None:
        """To the front process; the reaper is its parent, and knows best whether it is still there."""
        try:
            if self.link is not None:
                await self.link.signal(name, number)
        except ReaperGone:
            self.link = None

    async def _gone_within(self, look: _Members, wait_s: float) -> None:
        pause = QUICK_S
        with trio.move_on_after(wait_s):
            while await look():
                await trio.sleep(pause)
                pause = min(2 * pause, SLOW_S / 2)

    async def _kill(self, look: _Members) -> None:
        begun, pause = trio.current_time(), QUICK_S
        while family := await look():
            spared = trio.current_time() - begun < TRACKER_S
            kill(each.id for each in family if not (spared and tracks_resources(each.pid)))
            if trio.current_time() - begun > HANGS_AFTER_S:
                await self.node.housing.kill(self.directory)
                self.tell(f"{', '.join(map(str, family[:3]))} was killed and does not end: it hangs in the kernel")
            await trio.sleep(pause)
            pause = min(2 * pause, SLOW_S)

    async def _end_reaper(self) -> None:
        try:
            if self.link is not None and await self.link.end():
                with trio.move_on_after(SLOW_S):
                    await self.link.gone.wait()
        except ReaperGone:
            pass
        reaper = self.kin.reaper
        while reaper is not None and lives(reaper):
            send_signal(reaper, signal.SIGKILL)
            await trio.sleep(QUICK_S)


def kill(processes: Iterable[ProcessId]) -> None:
    for each in processes:
        send_signal(each, signal.SIGKILL)

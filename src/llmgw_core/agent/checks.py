"""The engine-checks that were ordered: one at a time for each engine, whoever else asks waits for the same result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import define, evolve, field

from llmgw_core.wire.message import CheckEngine, EngineChecked


@define(eq=False)
class _Running:
    done: trio.Event = field(factory=trio.Event)
    result: EngineChecked | None = None
    """`None` where it was cancelled."""


@define(eq=False)
class EngineChecks:
    check: Callable[[CheckEngine], Awaitable[EngineChecked]]
    _running: dict[str, _Running] = field(factory=dict)

    async def answer(self, order: CheckEngine) -> EngineChecked:
        while (running := self._running.get(order.engine)) is not None:
            await running.done.wait()
            if running.result is not None:
                return evolve(running.result, id=order.id)
        return await self._run(order)

    async def _run(self, order: CheckEngine) -> EngineChecked:
        running = self._running[order.engine] = _Running()
        try:
            running.result = await self.check(order)
        finally:
            del self._running[order.engine]
            running.done.set()
        return running.result

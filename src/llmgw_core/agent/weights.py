"""Looking at weights, for offers and launches alike: a source that blocks keeps one thread and nobody else waiting."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from attrs import define, field

from llmgw_core.agent.look import Look

LIMIT_S = 30.0


@define(eq=False)
class Weights:
    look_at: Callable[[str], str]
    """Why the weights of a source cannot be used; empty: they can. May block."""
    limit_s: float = LIMIT_S
    _looks: dict[str, Look[str]] = field(factory=dict)

    async def trouble(self, source: str) -> str:
        if source not in self._looks:
            otherwise = f"{source} could not be read within {self.limit_s:g} s: a file of it blocks"
            self._looks[source] = Look(partial(self.look_at, source), otherwise, self.limit_s)
        return await self._looks[source].take()

    def forget_all_but(self, sources: Collection[str]) -> None:
        self._looks = {source: look for source, look in self._looks.items() if source in sources}

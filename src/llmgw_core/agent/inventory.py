"""The agent's engines: what engine-check says of each here, and the tables to judge commands by.

Rules: at once what the last agent kept, then what changed since; whoever is about to start an engine asks for it as it
is installed at that moment; one inspection of an engine at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio
from attrs import define, field

from llmgw_core.discovery.engines import Inspected, Named, inspect_engine
from llmgw_core.discovery.kept_inventory import read_inventory, write_inventory
from llmgw_core.engines import Engines, LoadedPlugin

INVENTORY_EVERY_S = 60.0
_log = logging.getLogger("llmgw.agent")


@define(eq=False)
class Inventory:
    engines: Engines
    named: Named
    file: Path
    tell: Callable[[tuple[Inspected, ...]], None] = lambda _: None
    """Hears of all that are known whenever one changed."""
    _known: dict[str, Inspected] = field(factory=dict)
    _turns: dict[str, trio.Lock] = field(factory=dict)

    def read(self) -> None:
        """What the last agent kept."""
        self._known = {each.found.engine: each for each in read_inventory(self.file)}

    @property
    def known(self) -> tuple[Inspected, ...]:
        return tuple(self._known[name] for name in sorted(self._known))

    async def watch(self) -> None:
        self.tell(self.known)
        while True:
            async with trio.open_nursery() as nursery:  # an engine whose help hangs hides no other
                for plugin in self.engines.loaded:
                    nursery.start_soon(self._inspect, plugin)
            self._forget_others()
            await trio.sleep(INVENTORY_EVERY_S)

    async def now(self, engine: str) -> Inspected:
        """The engine as it is installed now; raises `UnknownEngine` where no plugin runs it."""
        self.engines.info(engine)
        plugin = next(each for each in self.engines.loaded if each.info.name == engine)
        return await self._inspect(plugin)

    async def _inspect(self, plugin: LoadedPlugin) -> Inspected:
        name = plugin.info.name
        async with self._turns.setdefault(name, trio.Lock()):
            before = self._known.get(name)
            after = await inspect_engine(self.engines, plugin, self.named, before)
            if after != before:
                self._known[name] = after
                self._keep()
                self.tell(self.known)
            return after

    def _forget_others(self) -> None:
        loaded = {plugin.info.name for plugin in self.engines.loaded}
        gone = self._known.keys() - loaded
        if gone:
            self._known = {name: each for name, each in self._known.items() if name in loaded}
            self._keep()
            self.tell(self.known)

    def _keep(self) -> None:
        try:
            write_inventory(self.file, self.known)
        except OSError as error:
            reason = error.strerror or str(error)
            _log.warning("inventory not kept", extra={"file": str(self.file), "reason": reason})

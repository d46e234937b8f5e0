"""The agent's engines: told as soon as they are known, kept over a restart, inspected anew when they changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from llmgw_core.agent.inventory import Inventory
from llmgw_core.discovery.engines import Inspected, Named
from llmgw_core.engines import Engines
from llmgw_core.errors import UnknownEngine
from llmgw_core.plugins import load_engines
from llmgw_core.testing.running_node import DEADLINE_S, SIM


class Counted:
    """The sim behind a script that counts its starts."""

    def __init__(self, directory: Path) -> None:
        self.path, self._log = directory / "sim", directory / "starts"
        self.path.write_text(f'#!/bin/sh\necho start >> {self._log}\nexec {SIM} "$@"\n')
        self.path.chmod(0o755)

    @property
    def starts(self) -> int:
        return len(self._log.read_text().split()) if self._log.exists() else 0


@pytest.fixture
def sim(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def inventory(
    directory: Path, sim: Counted, engines: Engines | None = None, server: tuple[str, ...] = ()
) -> tuple[Inventory, list[tuple[str, ...]]]:
    told: list[tuple[str, ...]] = []

    def tell(known: tuple[Inspected, ...]) -> None:
        told.append(tuple(each.found.engine for each in known))

    programs = {"sim": {"llmgw-sim": (str(sim.path),)}, "llamacpp": {"llama-server": server}}
    named = Named(programs, os.environ, timeout_s=60)
    return Inventory(engines or load_engines({"sim"}), named, directory / "engines.json", tell), told


async def test_an_engine_whose_help_hangs_hides_no_other(sim: Counted, tmp_path: Path) -> None:
    hangs = tmp_path / "llama-server"
    hangs.write_text("#!/bin/sh\nexec sleep 1000\n")
    hangs.chmod(0o755)
    made, told = inventory(tmp_path, sim, load_engines({"sim", "llamacpp"}), server=(str(hangs),))
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.watch)
            while ("sim",) not in told:  # noqa: ASYNC110 - it is another program's event
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def test_who_starts_an_engine_runs_its_help_only_when_it_changed(sim: Counted, tmp_path: Path) -> None:
    made, told = inventory(tmp_path, sim)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(made.now, "sim")
        starts = sim.starts
        assert starts <= 3
        next_agent, _ = inventory(tmp_path, sim)
        next_agent.read()
        known = await next_agent.now("sim")
        assert known.tables["llmgw-sim"].documents("--model")
        assert sim.starts == starts
        os.utime(sim.path)
        await next_agent.now("sim")
        assert sim.starts > starts
    assert told == [("sim",)]


async def test_an_engine_without_a_plugin_is_unknown(sim: Counted, tmp_path: Path) -> None:
    made, _ = inventory(tmp_path, sim)
    with pytest.raises(UnknownEngine):
        await made.now("vllm")

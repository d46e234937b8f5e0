"""The inventory of a node's engines: real programs, run no oftener than needed."""

import itertools
import os
import sys
from pathlib import Path

import pytest
import trio
from attrs import evolve

from llmgw_core.discovery.engines import Inspected, Named, help_digest, inspect_engine
from llmgw_core.discovery.kept_inventory import read_inventory, write_inventory
from llmgw_core.engine import Flag, FlagTable
from llmgw_core.engine.flags import SWITCH
from llmgw_core.engines import Engines
from llmgw_core.model.node import EngineFound
from llmgw_core.plugins import load_engines

SIM = Path(sys.executable).with_name("llmgw-sim")


class Wrapped:
    """The sim behind a script that counts its starts."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "sim"
        self._log = directory / "starts"
        self.write(f'exec {SIM} "$@"')

    def write(self, does: str) -> None:
        beside = self.path.with_name("sim.new")
        beside.write_text(f"#!/bin/sh\necho start >> {self._log}\n{does}\n")
        beside.chmod(0o755)
        beside.replace(self.path)

    @property
    def starts(self) -> int:
        return len(self._log.read_text().split()) if self._log.exists() else 0

    @property
    def named(self) -> Named:
        return Named({"sim": {"llmgw-sim": (str(self.path),)}}, os.environ, timeout_s=60)


@pytest.fixture
def sim(tmp_path: Path) -> Wrapped:
    return Wrapped(tmp_path)


@pytest.fixture(scope="module")
def engines() -> Engines:
    return load_engines({"sim"})


async def inventory(engines: Engines, named: Named, previous: tuple[Inspected, ...] = ()) -> tuple[Inspected, ...]:
    (plugin,) = engines.loaded
    return (await inspect_engine(engines, plugin, named, *previous),)


async def found(engines: Engines, sim: Wrapped, previous: tuple[Inspected, ...] = ()) -> tuple[Inspected, ...]:
    with trio.fail_after(60):
        return await inventory(engines, sim.named, previous)


async def test_an_engine_is_told_with_path_version_digest_and_verdict(engines: Engines, sim: Wrapped) -> None:
    (engine,) = [each.found for each in await found(engines, sim)]
    assert (engine.engine, engine.executable, engine.outcome, engine.reason) == ("sim", str(sim.path), "accepted", "")
    assert engine.version
    assert len(engine.help_digest or "") == 64


async def test_its_help_is_run_again_only_when_its_file_changed(engines: Engines, sim: Wrapped) -> None:
    first = await found(engines, sim)
    starts = sim.starts
    assert await found(engines, sim, first) == first
    assert sim.starts == starts
    sim.write(f'exec {SIM} "$@" # upgraded')
    again = await found(engines, sim, first)
    assert sim.starts == 2 * starts
    assert [each.found for each in again] == [each.found for each in first]
    assert again[0].key != first[0].key


async def test_a_new_package_in_its_environment_is_a_change(engines: Engines, sim: Wrapped, tmp_path: Path) -> None:
    packages = tmp_path / "venv/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir()
    python.symlink_to(SIM)
    named = Named({"sim": {"llmgw-sim": (str(python),)}}, os.environ, timeout_s=60)
    (before,) = await inventory(engines, named)
    (packages / "sglang-0.5.24.dist-info").mkdir()
    (after,) = await inventory(engines, named, (before,))
    assert after.key != before.key


async def test_another_version_of_the_plugin_asks_again(engines: Engines, sim: Wrapped) -> None:
    first = await found(engines, sim)
    starts = sim.starts
    newer = [evolve(plugin, version="9.9") for plugin in engines.loaded]
    await found(Engines(engines._manager, newer), sim, first)
    assert sim.starts == 2 * starts


async def test_a_refused_flag_is_the_reason(engines: Engines, sim: Wrapped) -> None:
    sim.write(f"{SIM} \"$@\" | sed 's/--model/--modell/g'")
    (engine,) = [each.found for each in await found(engines, sim)]
    assert (engine.outcome, engine.reason) == ("findings", "--model (not documented)")


async def test_what_could_not_be_checked_is_tried_again(engines: Engines, sim: Wrapped) -> None:
    sim.write("echo CUDA is not ready >&2; exit 1")
    first = await found(engines, sim)
    assert (first[0].found.outcome, first[0].found.help_digest) == ("unchecked", None)
    assert "CUDA is not ready" in first[0].found.reason
    starts = sim.starts
    await found(engines, sim, first)
    assert sim.starts > starts


async def test_an_engine_that_is_not_there_is_told(engines: Engines, tmp_path: Path) -> None:
    named = Named({"sim": {"llmgw-sim": (str(tmp_path / "gone"),)}}, os.environ)
    (engine,) = [each.found for each in await inventory(engines, named)]
    assert (engine.executable, engine.outcome) == (None, "unchecked")
    assert "engine not found" in engine.reason


async def test_an_inventory_outlives_the_agent(engines: Engines, sim: Wrapped, tmp_path: Path) -> None:
    kept = tmp_path / "inventory.json"
    first = await found(engines, sim)
    write_inventory(kept, first)
    starts = sim.starts
    assert read_inventory(kept) == first
    assert first[0].tables["llmgw-sim"].documents("--model")
    assert first[0].executables == {"llmgw-sim": (str(sim.path),)}
    assert await found(engines, sim, read_inventory(kept)) == first
    assert sim.starts == starts


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1, "engines": []}', '{"format": 2, "engines": 3}'])
def test_a_damaged_file_keeps_nothing(tmp_path: Path, text: str) -> None:
    kept = tmp_path / "inventory.json"
    assert read_inventory(kept) == ()
    kept.write_text(text)
    assert read_inventory(kept) == ()


def test_a_table_in_doubt_is_not_kept_and_its_help_is_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "inventory.json"
    found = EngineFound("vllm", "/opt/vllm", "0.32.0", "ab", "accepted")
    for table in (FlagTable((Flag(("--model",)),), cuts=("its end",)), FlagTable((Flag(("--model",), doubt="hole"),))):
        write_inventory(kept, (Inspected(found, "key", {"vllm": table}),))
        (read,) = read_inventory(kept)
        assert (read.found, read.key, dict(read.tables)) == (found, "", {})
    counted = Inspected(found, "key", {"vllm": FlagTable((Flag(("--model",)),), counted=True)})
    write_inventory(kept, (counted,))
    assert read_inventory(kept) == (counted,)


def test_what_is_kept_says_all(tmp_path: Path) -> None:
    kept = tmp_path / "inventory.json"
    inspected = (Inspected(EngineFound("vllm", "/opt/vllm", "0.32.0", "ab", "findings", "--x (removed)"), "key"),)
    write_inventory(kept, inspected)
    assert read_inventory(kept) == inspected


def test_a_digest_tells_flags_and_not_their_order_or_prose() -> None:
    model, eager = Flag(("--model",)), Flag(("--eager",), SWITCH)
    digest = help_digest({"x": FlagTable((model, eager))})
    assert digest == help_digest({"x": FlagTable((eager, evolve(model, note="the model"))[::1])})
    assert digest != help_digest({"x": FlagTable((model, evolve(eager, arity=model.arity)))})
    assert digest != help_digest({"x": FlagTable((model,))})


async def test_the_loops_thread_computes_nothing_for_each_flag_of_a_help(tmp_path: Path) -> None:
    few, many = 10, 8_000
    before = await calls_of_the_loops_thread(tmp_path / "few", few)  # with what is imported at the first use
    after = await calls_of_the_loops_thread(tmp_path / "many", many)
    assert after - before < many - few


async def calls_of_the_loops_thread(directory: Path, flags: int) -> int:
    """How many functions it calls while the inventory of an engine with so many flags is taken."""
    plugins, named = load_engines({"vllm"}), vllm_with_flags(directory, flags)
    calls = itertools.count()
    sys.setprofile(lambda *_: next(calls))  # it hears of this thread only
    try:
        (inspected,) = await inventory(plugins, named)
    finally:
        sys.setprofile(None)
    assert len(inspected.tables["vllm"].flags) > flags
    return next(calls)


def vllm_with_flags(directory: Path, flags: int) -> Named:
    directory.mkdir()
    text = "".join(f"  --flag-{number} N\n                 does {number}\n" for number in range(flags))
    (directory / "help").write_text(f"usage: vllm serve [-h]\n\noptions:\n  -h, --help  show\n{text}")
    vllm = directory / "vllm"
    vllm.write_text(f"#!/bin/sh\ncat {directory}/help\n")
    vllm.chmod(0o755)
    return Named({"vllm": {"vllm": (str(vllm),)}}, os.environ)


@pytest.mark.parametrize(
    ("module", "executable"), [("no_such_engine.server", None), ("broken_engine", "broken_engine")]
)
async def test_a_module_that_is_not_installed_is_no_engine_and_a_broken_one_is(
    engines: Engines, tmp_path: Path, module: str, executable: str | None
) -> None:
    (tmp_path / "broken_engine.py").write_text("import no_such_dependency")
    named = Named(
        {"sim": {"llmgw-sim": (sys.executable, "-m", module)}}, {**os.environ, "PYTHONPATH": str(tmp_path)}, 60
    )
    (engine,) = [each.found for each in await inventory(engines, named)]
    assert (engine.executable or "").rpartition(" ")[2] == (executable or "")
    assert engine.outcome == "unchecked"
    assert "No module named" in engine.reason
    assert "--executable" not in engine.reason

"""What a node answers to what it may be asked to run."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve

from llmgw_core.agent.offers import check_offer
from llmgw_core.discovery.engines import Inspected
from llmgw_core.engine import EngineInfo
from llmgw_core.model.catalog import Profile, Sidecar
from llmgw_core.model.launch import Offer, OfferChecked
from llmgw_core.model.node import NOT_LOOKED_YET, EngineFound
from llmgw_core.plugins import load_engines
from llmgw_core.surface import read_surfaces
from llmgw_core.testing.running_node import DEADLINE_S, SIM, running_node, wait_until

ENGINES = load_engines({"sim", "llamacpp", "vllm", "sglang"})


def an_offer(**profile: Any) -> Offer:
    return Offer("key", "m", "/models/m", "p", Profile(**{"engine": "sim", **profile}))


def recorded(info: EngineInfo) -> Inspected:
    """The newest recorded tables, as if they were installed; the sim's own, which has none."""
    if info.name == "sim":
        help_text = subprocess.run([SIM, "--help"], capture_output=True, text=True, check=True).stdout
        tables = {"llmgw-sim": ENGINES.read_help("sim", "llmgw-sim", help_text)}
    else:
        tables = {program.name: read_surfaces(info, program.name)[-1].table for program in info.programs}
    executables = {name: (f"/opt/{name}",) for name in tables}
    return Inspected(EngineFound(info.name, "/opt/x", "1", "ab", "accepted"), "key", tables, executables)


def answer(offer: Offer, **changes: Any) -> OfferChecked:
    return check_offer(ENGINES, offer, evolve(recorded(ENGINES.info(offer.profile.engine)), **changes))


def test_the_command_of_head_and_worker_are_judged() -> None:
    assert answer(an_offer()) == OfferChecked("key", head_first=True, takes_key=True)
    assert answer(an_offer(engine="llamacpp", nodes=3)).workers_first
    assert answer(an_offer(extra_args=("--no-such",))).refusal.startswith("--no-such (not documented)")
    set_twice = answer(an_offer(extra_args=("--port", "1"))).refusal
    assert set_twice == "its extra arguments set --port, which llmgw sets itself"


@pytest.mark.parametrize("engine", ["sim", "llamacpp", "vllm", "sglang"])
def test_an_engine_says_whether_it_can_be_told_to_ask_for_a_key(engine: str) -> None:
    assert answer(an_offer(engine=engine)).takes_key
    assert not answer(an_offer(engine=engine, engine_key=False)).takes_key


def test_a_profile_whose_own_words_leave_no_way_for_a_key_runs_without() -> None:
    own = answer(an_offer(engine="sglang", extra_args=("--config", "/etc/own.yaml")))
    assert (own.refusal, own.takes_key) == ("", False)


def test_a_key_that_would_stand_in_the_arguments_is_none() -> None:
    """SGLang before 0.5.3 has no `--config`."""
    info = ENGINES.info("sglang")
    (program,) = info.programs
    old = next(each for each in read_surfaces(info, program.name) if not each.table.documents("--config"))
    said = answer(an_offer(engine="sglang"), tables={program.name: old.table})
    assert (said.refusal, said.takes_key) == ("", False)


def test_without_the_workers_program_only_one_node_goes() -> None:
    info = ENGINES.info("llamacpp")
    head = info.programs[0].name
    alone: dict[str, Any] = {
        "tables": {head: recorded(info).tables[head]},
        "warnings": ("ggml-rpc-server is not there",),
    }
    assert answer(an_offer(engine="llamacpp"), **alone).refusal == ""
    said = answer(an_offer(engine="llamacpp", nodes=2), **alone).refusal
    assert said == "llamacpp could not be checked: ggml-rpc-server is not there"


def test_what_is_not_there_or_not_checked_is_refused_with_the_reason() -> None:
    absent = Inspected(EngineFound("sim", None, reason="engine not found: no llmgw-sim"), "")
    assert check_offer(ENGINES, an_offer(), absent).refusal == "engine not found: no llmgw-sim"
    crashed = Inspected(EngineFound("sim", "/opt/sim", reason="help crashed: exit code 1"), "key")
    assert check_offer(ENGINES, an_offer(), crashed).refusal == "sim could not be checked: help crashed: exit code 1"
    assert "no engine plugin 'acme'" in check_offer(ENGINES, an_offer(engine="acme"), None).refusal


def test_a_sidecars_port_is_a_number_for_the_judge() -> None:
    sidecar = Sidecar(command=("cache", "{port}"))
    offer = an_offer(sidecars={"cache": sidecar}, extra_args=("--context-length", "{cache.port}"))
    assert answer(offer).refusal == ""


async def test_answers_follow_the_weights_and_the_engine(tmp_path: Path) -> None:
    """An upgrade that drops a flag changes the answer; so do weights that come."""
    told: list[tuple[OfferChecked, ...]] = []
    there = tmp_path / "weights"
    sim = tmp_path / "sim"
    sim.write_text(f'#!/bin/sh\nexec {SIM} "$@"\n')
    sim.chmod(0o755)

    def look(source: str) -> str:
        return "" if there.exists() else f"{source} is not there"

    async with running_node(tmp_path / "agent", sim=str(sim), look_at_weights=look, tell_offers=told.append) as node:
        node.runtime.offer((an_offer(),))
        wanted = OfferChecked("key", weights="/models/m is not there", head_first=True, takes_key=True)
        await wait_until(lambda: told and told[-1] == (wanted,), "an answer")
        there.touch()
        sim.with_name("new").write_text(f"#!/bin/sh\n{SIM} \"$@\" | sed 's/--model/--modell/g'\n")
        sim.with_name("new").chmod(0o755)
        sim.with_name("new").replace(sim)
        with trio.fail_after(DEADLINE_S):
            await node.runtime.inventory.now("sim")
        refused = OfferChecked("key", refusal="--model (not documented)", head_first=True)
        await wait_until(
            lambda: [refused.refusal in each.refusal and not each.weights for each in told[-1]] == [True], "another one"
        )
        node.runtime.offer(())
        await wait_until(lambda: told[-1] == (), "no answer")


async def test_weights_that_block_delay_no_other_answer_of_offers_that_come_later_neither(tmp_path: Path) -> None:
    told: list[tuple[OfferChecked, ...]] = []
    blocked = threading.Event()

    def look(source: str) -> str:
        if source == "/slow":
            assert blocked.wait(4 * DEADLINE_S)
        return ""

    def answered() -> set[str]:
        return {each.key for each in told[-1]} if told else set()

    slow, other, later = (evolve(an_offer(), key=key, source=f"/{key}") for key in ("slow", "other", "later"))
    async with running_node(tmp_path / "agent", sim=str(SIM), look_at_weights=look, tell_offers=told.append) as node:
        node.runtime.offer((slow, other))
        await wait_until(lambda: answered() == {"other"}, "an answer about the one")
        node.runtime.offer((slow, other, later))
        await wait_until(lambda: answered() == {"other", "later"}, "an answer about the one that came later")
        blocked.set()
        await wait_until(lambda: answered() == {"slow", "other", "later"}, "all answers")


async def test_an_engine_that_is_being_looked_at_is_told_as_such(tmp_path: Path) -> None:
    """A large engine's help takes a while: until then nobody knows that there is none."""
    told: list[tuple[EngineFound, ...]] = []
    held, sim = tmp_path / "held", tmp_path / "sim"
    held.touch()
    sim.write_text(f'#!/bin/sh\nwhile [ -e {held} ]; do sleep 0.05; done\nexec {SIM} "$@"\n')
    sim.chmod(0o755)
    async with running_node(tmp_path / "agent", sim=str(sim), tell_engines=told.append):
        await wait_until(lambda: told, "what it has")
        assert told[-1] == (EngineFound("sim", None, reason=NOT_LOOKED_YET),)
        held.unlink()
        await wait_until(lambda: told[-1][0].outcome == "accepted", "it was looked at")

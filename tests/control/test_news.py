"""Which reports of a node are worth an event."""

from __future__ import annotations

from attrs import evolve

from llmgw_core.control.agents import news_of
from llmgw_core.model.node import NOT_LOOKED_YET, EngineFound, Fabric, Found, GpuReport
from llmgw_core.testing.light_agent import facts_of_a_node

FACTS = evolve(facts_of_a_node(1), engines=(EngineFound("sim", "/opt/sim", "0.1.0", "ab", "accepted"),))
UNSEEN = EngineFound("vllm", None, reason=NOT_LOOKED_YET)


def test_the_first_whole_report_is_one_and_what_an_agent_says_before_it_looked_is_none() -> None:
    started = evolve(FACTS, gpus=GpuReport(Found.FAILED, reason=NOT_LOOKED_YET))
    assert news_of(None, started) == []
    assert news_of(started, FACTS) == [("node reported", f"agent {FACTS.agent_version}, 8 GPUs")]
    assert news_of(FACTS, FACTS) == []


def test_each_kind_of_change_is_told() -> None:
    gone = evolve(FACTS, gpus=GpuReport(Found.FAILED, reason="nvidia-smi hung"), fabrics=(Fabric("ib-a", ()),))
    assert news_of(FACTS, gone) == [("GPUs changed", "nvidia-smi hung"), ("fabrics changed", "ib-a is fine")]


def test_an_engine_is_told_once_it_was_looked_at() -> None:
    looking = evolve(FACTS, engines=(*FACTS.engines, UNSEEN))
    assert news_of(FACTS, looking) == []
    found = evolve(FACTS, engines=(*FACTS.engines, EngineFound("vllm", "/opt/vllm", "0.32.0", "cd", "findings")))
    assert news_of(looking, found) == [("engines changed", "sim 0.1.0 accepted, vllm 0.32.0 findings")]

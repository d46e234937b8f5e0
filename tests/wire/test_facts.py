"""What is kept of a node's facts is bounded, whatever it said; what fits is kept as it is."""

from __future__ import annotations

import json

from llmgw_core.model.node import Fabric, Found, Gpu, GpuReport, IbPort, IbReport, NodeFacts
from llmgw_core.model.replica import Hca
from llmgw_core.model.shard import ShardPhase, ShardStatus
from llmgw_core.wire.facts import FACTS_BYTES, bounded, bounded_shards, fitting, render_facts

PORT = IbPort(Hca("mlx5_0"), "ACTIVE")


def facts(**changes: object) -> NodeFacts:
    fields = {"agent_version": "1", "gpus": GpuReport(Found.NONE), "infiniband": IbReport(Found.SOME, (PORT,))}
    return NodeFacts(**{**fields, **changes})  # type: ignore[arg-type]


def test_usual_facts_are_themselves() -> None:
    usual = facts(fabrics=(Fabric("ib-a", (Hca("mlx5_0"),)),), refused_plugins=("é" * 500,))
    assert bounded(usual) == usual


def test_a_long_text_is_cut_with_a_mark() -> None:
    kept = bounded(facts(agent_version="x" * 10_000))
    assert kept.agent_version == "x" * 499 + "…"


def test_too_many_are_cut_and_it_is_said() -> None:
    kept = bounded(facts(fabrics=tuple(Fabric(f"f{each}", ()) for each in range(60_000))))
    assert len(kept.fabrics) == 64
    assert kept.refused_plugins == ("too much was reported: 60000 fabrics, of which 64 are kept",)


def test_the_worst_fits_many_times_into_a_message() -> None:
    text = "\0" * 10_000
    gpus = tuple(Gpu(each, text, text, driver_version=text, bus_id=text, trouble=text) for each in range(1000))
    ports = tuple(IbPort(Hca(text), text, text, text, text, None, text, text, text, text) for _ in range(1000))
    fabrics = tuple(Fabric(text, (Hca(text),) * 100, trouble=text) for _ in range(1000))
    worst = facts(gpus=GpuReport(Found.SOME, gpus, text), infiniband=IbReport(Found.SOME, ports, text), fabrics=fabrics)
    assert len(render_facts(bounded(worst))) < 4 * FACTS_BYTES


def test_as_many_as_fit_are_answered() -> None:
    values = [{"id": each} for each in range(100)]
    size = len(json.dumps(values[50])) + 1
    assert fitting(values, 10 * size, last=True) == values[-10:]
    assert fitting(values[50:], 10 * size, last=False) == values[50:60]


def test_of_a_nodes_shards_only_what_could_be_one_is_kept() -> None:
    long = ShardStatus("m/1", 1, 0, ShardPhase.READY, gpus=("g" * 9999,) * 999, engine_version="v" * 9999)
    (kept,) = bounded_shards((ShardStatus("x" * 9999, 1, 0, ShardPhase.READY), long))
    assert kept.replica == "m/1"
    assert (len(kept.gpus), len(kept.gpus[0]), len(kept.engine_version or "")) == (256, 500, 500)

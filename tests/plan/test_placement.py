"""Where replicas go, and the sentences of those that have no place."""

from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from llmgw_core.model.catalog import Profile
from llmgw_core.model.deployment import ReplicaFailure, ReplicaRecord
from llmgw_core.model.launch import Launch
from llmgw_core.model.node import NOT_LOOKED_YET, EngineFound, Fabric, Found, Gpu, GpuReport, NodeFacts, PortRange
from llmgw_core.model.replica import Hca
from llmgw_core.model.shard import ShardPhase, ShardStatus
from llmgw_core.plan.explain import explain, placer_of
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.restart import refusal_mark
from llmgw_core.plan.world import ObservedNode, World
from llmgw_core.testing.made_world import (
    a_catalog,
    a_profile,
    a_world,
    accepting,
    decided,
    gpu_report,
    node_facts,
    offers_of,
    seen_node,
    some_gpus,
    with_node,
)


def launches(world: World) -> dict[str, Launch]:
    """What a pass places, by replica."""
    return {each.id: each.assignment.launch for each in reconcile(world).records if each.assignment}


def nodes_of(world: World) -> dict[str, tuple[str, ...]]:
    return {name: tuple(place.node for place in launch.places) for name, launch in launches(world).items()}


def one_model(profile: Profile, *nodes: ObservedNode, replicas: int = 1, **changes: Any) -> World:
    return a_world(a_catalog({"m": profile}, replicas), nodes, **changes)


def test_of_two_nodes_with_room_the_tighter_one_is_taken() -> None:
    world = one_model(a_profile(1, 2), seen_node("big", node_facts(8)), seen_node("small", node_facts(4)))
    assert nodes_of(world) == {"m/1": ("small",)}


def test_replicas_of_one_model_stand_apart_before_they_fit_tightly() -> None:
    world = one_model(a_profile(1, 1), seen_node("big", node_facts(8)), seen_node("small", node_facts(4)), replicas=2)
    assert nodes_of(world) == {"m/1": ("small",), "m/2": ("big",)}


def test_without_gpus_the_node_with_the_fewest_shards_is_taken() -> None:
    catalog = a_catalog({"a": a_profile(), "b": a_profile(), "c": a_profile()})
    world = a_world(catalog, [seen_node("gpu-1"), seen_node("gpu-2")])
    assert nodes_of(world) == {"a/1": ("gpu-1",), "b/1": ("gpu-2",), "c/1": ("gpu-1",)}
    assert all(place.gpus == () for launch in launches(world).values() for place in launch.places)


def test_the_largest_are_placed_first() -> None:
    catalog = a_catalog({"a-small": a_profile(1, 1), "b-large": a_profile(1, 8)})
    assert set(nodes_of(a_world(catalog, [seen_node("gpu-1", node_facts(8))]))) == {"b-large/1"}


def test_the_first_profile_that_has_a_place_wins() -> None:
    catalog = a_catalog({"m": (a_profile(1, 8), a_profile(1, 4))})
    (launch,) = launches(a_world(catalog, [seen_node("gpu-1", node_facts(4))])).values()
    assert launch.offer.profile_name == "m-1"


def test_gpus_are_named_by_uuid_in_the_order_of_their_indices() -> None:
    gpus = (Gpu(10, "GPU-x"), Gpu(2, "GPU-y"), Gpu(0, None))
    world = one_model(a_profile(1, 3), seen_node("gpu-1", facts_with(gpus=gpu_report(gpus))))
    assert launches(world)["m/1"].places[0].gpus == ("0", "GPU-y", "GPU-x")


def test_a_group_gets_its_fabric_and_each_node_its_own_adapters_there() -> None:
    other = evolve(node_facts(8), fabrics=(Fabric("ib-z", (Hca("mlx5_9"),)), Fabric("ib-a", (Hca("mlx5_2"),))))
    world = one_model(a_profile(2, 8), seen_node("gpu-1", node_facts(8, ["ib-a"])), seen_node("gpu-2", other))
    launch = launches(world)["m/1"]
    assert [place.hcas for place in launch.places] == [(Hca("mlx5_0"), Hca("mlx5_1")), (Hca("mlx5_2"),)]
    assert launch.rendezvous_port == 19000


def test_a_single_node_takes_no_adapters_and_no_rendezvous() -> None:
    launch = launches(one_model(a_profile(1, 1), seen_node("gpu-1", node_facts(8, ["ib-a"]))))["m/1"]
    assert (launch.places[0].hcas, launch.rendezvous_port) == ((), None)


def test_the_fabric_with_the_fewest_fit_nodes_is_taken() -> None:
    wide = [seen_node(f"a-{n}", node_facts(8, ["ib-a"])) for n in range(4)]
    tight = [seen_node(f"b-{n}", node_facts(8, ["ib-b"])) for n in range(2)]
    assert nodes_of(one_model(a_profile(2, 8), *wide, *tight)) == {"m/1": ("b-0", "b-1")}


def test_no_group_is_on_two_fabrics() -> None:
    world = one_model(
        a_profile(2, 8), seen_node("gpu-1", node_facts(8, ["ib-a"])), seen_node("gpu-2", node_facts(8, ["ib-b"]))
    )
    assert reconcile(world).unplaced == {
        "m/1": "needs 2 nodes with 8 free GPUs on one fabric; ib-a has 1, ib-b has 1",
    }


def a_build(version: str, digest: str) -> EngineFound:
    return EngineFound("sim", "/usr/bin/sim", version, digest)


def test_e28_no_group_has_two_engine_versions() -> None:
    world = one_model(
        a_profile(2, 8),
        seen_node("gpu-1", evolve(node_facts(8, ["ib-a"]), engines=(a_build("9002", "9002a"),))),
        seen_node("gpu-2", evolve(node_facts(8, ["ib-a"]), engines=(a_build("9033", "9033a"),))),
    )
    assert reconcile(world).unplaced == {
        "m/1": "needs 2 nodes with 8 free GPUs on one fabric; ib-a has 2, of 2 engine builds "
        "(9002 with help 9002a on gpu-1, 9033 with help 9033a on gpu-2)",
    }


def test_no_group_has_one_version_with_two_helps() -> None:
    other = evolve(node_facts(8, ["ib-a"]), engines=(a_build("1.0", "patched"),))
    world = one_model(a_profile(2, 8), seen_node("gpu-1", node_facts(8, ["ib-a"])), seen_node("gpu-2", other))
    assert reconcile(world).unplaced


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": NodeState.LOST, "shards": None}, "gpu-1 is lost"),
        ({"state": NodeState.SUSPECT}, "gpu-1 is suspect"),
        ({"state": NodeState.WAITING, "shards": None}, "gpu-1 is waiting"),
        ({"shards": None}, "gpu-1 has not said yet what it runs"),
        ({"facts": None}, "gpu-1 has not reported yet"),
    ],
)
def test_f42_who_is_not_there_is_no_candidate(changes: dict[str, Any], reason: str) -> None:
    world = one_model(a_profile(1, 2), seen_node("gpu-1"))
    decision = reconcile(with_node(world, "gpu-1", **changes))
    assert decision.unplaced == {"m/1": f"needs 2 free GPUs on one node; {reason}"}


def facts_with(**changes: Any) -> NodeFacts:
    return evolve(node_facts(2), **changes)


GPUS = some_gpus(2)
NO_ENGINE = EngineFound("sim", None, reason="/opt/sim is not there")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_with(engines=()), "has no sim"),
        (facts_with(engines=(NO_ENGINE,)), "has no sim: /opt/sim is not there"),
        (node_facts(0), "has no GPU"),
        (node_facts(1), "has 1 free GPU of 1"),
        (
            facts_with(gpus=GpuReport(Found.FAILED, (), "nvidia-smi hung")),
            "cannot tell its GPUs: nvidia-smi hung",
        ),
        (
            facts_with(gpus=gpu_report([GPUS[0], evolve(GPUS[1], mig=True)])),
            "has 1 free GPU of 2 (1 divided or in trouble)",
        ),
        (
            facts_with(gpus=gpu_report([evolve(GPUS[0], trouble="GPU requires reset"), GPUS[1]])),
            "has 1 free GPU of 2 (1 divided or in trouble)",
        ),
        (
            facts_with(gpus=gpu_report([evolve(GPUS[0], memory_total_mib=None), GPUS[1]])),
            "has 1 free GPU of 2 (1 with less than 40000 MiB)",
        ),
        (facts_with(serve_ports=PortRange(18000, 18000), busy_ports=(18000,)), "has no free port in 18000-18000"),
    ],
)
def test_each_filter_says_in_numbers_why_it_refuses(facts: NodeFacts, reason: str) -> None:
    world = one_model(a_profile(1, 2, min_gpu_memory_mib=40000), seen_node("gpu-1", facts))
    assert reconcile(world).unplaced == {"m/1": f"needs 2 free GPUs on one node; gpu-1 {reason}"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"refusal": "it has no flag --fast"}, "refuses it: it has no flag --fast"),
        ({"weights": "/models/m has no config.json"}, "lacks the weights: /models/m has no config.json"),
        (None, "has not answered this offer yet"),
    ],
)
def test_a_node_that_did_not_accept_the_offer_gets_nothing(answer: dict[str, str] | None, reason: str) -> None:
    catalog = a_catalog({"m": a_profile()})
    offers = offers_of(catalog)
    facts = node_facts() if answer is None else accepting(node_facts(), offers.values(), **answer)
    world = evolve(a_world(catalog, []), nodes={"gpu-1": seen_node("gpu-1", facts)})
    assert reconcile(world).unplaced == {"m/1": f"needs a node; gpu-1 {reason}"}


def test_an_engine_that_was_not_looked_at_yet_is_no_lack_of_it() -> None:
    unseen = EngineFound("sim", None, reason=NOT_LOOKED_YET)
    world = one_model(a_profile(), seen_node("gpu-1", facts_with(engines=(unseen,))))
    assert reconcile(world).unplaced == {"m/1": "needs a node; gpu-1 has not looked at its sim yet"}


@pytest.mark.parametrize(
    ("fabric", "refuted", "said"),
    [
        (Fabric("ib-a", (), trouble="mlx5_0:1 is DOWN"), {}, "ib-a has 1 (gpu-2 is not on ib-a: mlx5_0:1 is DOWN)"),
        (Fabric("ib-a", ()), {"ib-a": "ib-a is not one fabric: port LID 0x12 is held twice"}, "ib-a is not one fabric"),
    ],
)
def test_a_fabric_in_trouble_or_refuted_carries_no_group(fabric: Fabric, refuted: dict[str, str], said: str) -> None:
    nodes = [seen_node("gpu-1", node_facts(8, ["ib-a"])), seen_node("gpu-2", evolve(node_facts(8), fabrics=(fabric,)))]
    assert said in reconcile(one_model(a_profile(2, 8), *nodes, refuted=refuted)).unplaced["m/1"]


def test_the_sentence_for_a_group_names_the_fabrics_and_who_is_missing() -> None:
    world = one_model(
        a_profile(2, 8),
        seen_node("gpu-01", node_facts(8, ["ib-a"])),
        seen_node("gpu-03", node_facts(8, ["ib-a"])),
        seen_node("gpu-04", node_facts(4, ["ib-b"])),
    )
    world = with_node(world, "gpu-03", state=NodeState.LOST, shards=None)
    assert reconcile(world).unplaced["m/1"] == (
        "needs 2 nodes with 8 free GPUs on one fabric; ib-a has 1 (gpu-03 is lost), "
        "ib-b has none (gpu-04 has 4 free GPUs of 4)"
    )


def test_many_nodes_are_counted() -> None:
    nodes = [seen_node(f"gpu-{n:02}", node_facts(6 if n == 7 else 4)) for n in range(38)]
    world = one_model(a_profile(1, 8), *nodes, seen_node("gpu-38"), seen_node("gpu-39"))
    offer = world.offers["m", "m-0"]
    bare = accepting(node_facts(), [offer], weights="/models/m is not there")
    for name in ("gpu-38", "gpu-39"):
        world = with_node(world, name, facts=bare)
    assert reconcile(world).unplaced["m/1"] == (
        "needs 8 free GPUs on one node; "
        "of 40 nodes 2 lack the weights (gpu-38 lacks the weights: /models/m is not there), "
        "38 have fewer (most: 6 on gpu-07)"
    )


def test_a_line_of_reasons_stays_one_short_line() -> None:
    long = EngineFound("sim", None, reason="no such file " * 50)
    nodes = [seen_node(f"gpu-{n}", facts_with(engines=(long,))) for n in range(3)]
    catalog = a_catalog({"m": (a_profile(1, 8), a_profile(1, 4), a_profile(2, 8))})
    assert len(reconcile(a_world(catalog, nodes)).unplaced["m/1"]) <= 300


def a_record(**changes: Any) -> ReplicaRecord:
    return ReplicaRecord("m/1", "m", 3, **changes)


def test_a_node_on_which_it_failed_again_and_again_comes_last() -> None:
    nodes = [seen_node("gpu-1"), seen_node("gpu-2")]
    once = one_model(a_profile(1, 1), *nodes, records={"m/1": a_record(failed_on={"gpu-1": 1})})
    twice = one_model(a_profile(1, 1), *nodes, records={"m/1": a_record(failed_on={"gpu-1": 2})})
    both = one_model(a_profile(1, 1), *nodes, records={"m/1": a_record(failed_on={"gpu-1": 2, "gpu-2": 2})})
    assert [nodes_of(world)["m/1"] for world in (once, twice, both)] == [("gpu-1",), ("gpu-2",), ("gpu-1",)]


def test_what_an_engine_refused_is_not_tried_there_before_the_engine_or_the_command_changes() -> None:
    world = one_model(a_profile(1, 1), seen_node("gpu-1"))
    offer = world.offers["m", "m-0"]
    refused = {"m/1": a_record(refused_by={refusal_mark("gpu-1", offer): "digest of 1.0"})}
    world = evolve(world, records=refused)
    assert reconcile(world).unplaced == {"m/1": "needs 1 free GPU on one node; gpu-1 refused its command"}
    upgraded = node_facts(version="1.1")
    assert nodes_of(with_node(world, "gpu-1", facts=accepting(upgraded, [offer]))) == {"m/1": ("gpu-1",)}
    other = one_model(a_profile(1, 1, extra_args=("--fast",)), seen_node("gpu-1"), records=refused)
    assert nodes_of(other) == {"m/1": ("gpu-1",)}


def stale(phase: ShardPhase, **changes: Any) -> ShardStatus:
    return evolve(ShardStatus("old/1", 1, 0, phase, gpus=("GPU-0",), port=18000), **changes)


@pytest.mark.parametrize(
    ("phase", "gpus"),
    [
        (ShardPhase.READY, ("GPU-1",)),
        (ShardPhase.STOPPING, ("GPU-1",)),
        (ShardPhase.PREPARED, ("GPU-0",)),
        (ShardPhase.FAILED, ("GPU-0",)),
    ],
)
def test_what_a_superseded_shard_may_hold_is_taken(phase: ShardPhase, gpus: tuple[str, ...]) -> None:
    place = launches(one_model(a_profile(1, 1), seen_node("gpu-1", shards=(stale(phase),))))["m/1"].places[0]
    assert (place.gpus, place.port) == (gpus, 18001)


def test_a_replica_waits_for_its_own_superseded_shard_on_a_node() -> None:
    world = one_model(a_profile(), seen_node("gpu-1", shards=(stale(ShardPhase.STOPPING, replica="m/1"),)))
    assert reconcile(world).unplaced == {"m/1": "needs a node; gpu-1 still ends an earlier attempt of it"}


def test_a_new_generation_takes_other_ports_than_the_last_one() -> None:
    nodes = [seen_node(f"gpu-{n}", node_facts(8, ["ib-a"])) for n in range(2)]
    world = one_model(a_profile(2, 8), *nodes)
    ports, meetings = [], []
    for _ in range(60):
        record = decided(world, reconcile(world)).records["m/1"]
        assert record.assignment is not None
        launch = record.assignment.launch
        ports.append(launch.places[0].port)
        meetings.append(launch.rendezvous_port)
        last = (*(place.port for place in launch.places), launch.rendezvous_port or 0)
        world = evolve(world, records={"m/1": evolve(record, assignment=None, last_ports=last)})
    assert all(one != other for one, other in pairwise(ports))
    assert all(one != other for one, other in pairwise(meetings))
    assert {(port or 0) % 20 for port in meetings} == {0}


def test_explain_says_for_each_profile_and_node_what_speaks_against_it() -> None:
    catalog = a_catalog({"m": (a_profile(1, 8), a_profile(1, 2))}, 0)
    found = explain(a_world(catalog, [seen_node("gpu-1"), seen_node("gpu-2", node_facts(4))]), "m")
    assert [(each.profile, each.has_room) for each in found.profiles] == [("m-0", True), ("m-1", True)]
    assert [(each.node, each.refusal) for each in found.profiles[0].nodes] == [
        ("gpu-1", ""),
        ("gpu-2", "has 4 free GPUs of 4"),
    ]


def test_explain_of_an_unknown_model_names_those_that_there_are() -> None:
    world = one_model(a_profile(), seen_node("gpu-1"))
    assert explain(world, "n").refusal == "the catalog has no model n (there are: m)"
    assert explain(evolve(world, catalog=None), "n").refusal == "no catalog was applied yet"


def test_what_is_asked_of_a_placer_takes_nothing() -> None:
    world = one_model(a_profile(1, 8), seen_node("gpu-1"))
    placer = placer_of(world)
    offer = world.offers["m", "m-0"]
    assert [placer.has_place(offer, a_record()), placer.has_place(offer, a_record())] == [True, True]
    assert placer.place(a_record(), 1) is not None
    assert not placer.has_place(offer, a_record())


def test_what_refused_one_replicas_command_has_no_room_for_another() -> None:
    world = one_model(a_profile(1, 8), seen_node("gpu-1"))
    offer = world.offers["m", "m-0"]
    digest = world.nodes["gpu-1"].facts.engines[0].help_digest if world.nodes["gpu-1"].facts else None
    failure = ReplicaFailure(1.0, 1, "gpu-1", 0, "bad arguments", "'x' is no number")
    refused = {refusal_mark("gpu-1", offer): digest or ""}
    record = evolve(a_record(), refused_by=refused, failures=1, last_failure=failure)
    (told,) = explain(evolve(world, records={record.id: record}), "m").profiles
    assert not told.has_room
    assert told.nodes[0].refusal == "refused its command: 'x' is no number"

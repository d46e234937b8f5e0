"""What becomes of replicas: started, failed, rebuilt, stopped, adopted. Numbers in names are those of field cases."""

from typing import Any

import pytest
from attrs import evolve

from llmgw_core.model.catalog import Catalog, HealthTimings, Profile
from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.launch import OfferChecked, RunShard, StopShard
from llmgw_core.model.shard import ShardFailure, ShardPhase, ShardStatus
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.restart import STABLE_S
from llmgw_core.plan.world import Decision, World
from llmgw_core.testing.made_world import (
    NOW,
    a_catalog,
    a_profile,
    a_world,
    accepting,
    as_reported,
    decided,
    node_facts,
    offers_of,
    seen_node,
    status_of,
    with_node,
)

READY, STARTING, PREPARED = ShardPhase.READY, ShardPhase.STARTING, ShardPhase.PREPARED


def a_fleet(profile: Profile, nodes: int = 3, replicas: int = 1, **answer: bool) -> World:
    catalog = a_catalog({"m": profile}, replicas)
    facts = accepting(node_facts(8, ["ib-a"]), offers_of(catalog).values(), **answer)
    return a_world(catalog, [seen_node(f"gpu-{n}", facts) for n in range(nodes)])


def on(world: World) -> World:
    """After one pass, with what it decided stored."""
    return decided(world, reconcile(world))


def is_all(world: World, phase: ShardPhase) -> World:
    return on(as_reported(world, phase))


def ready(world: World) -> World:
    return is_all(is_all(on(world), PREPARED), READY)


def later(world: World, seconds: float) -> World:
    return evolve(world, now=world.now + seconds)


def assignment(world: World, replica: str = "m/1") -> Assignment:
    found = world.records[replica].assignment
    assert found is not None
    return found


def says(world: World, rank: int, phase: ShardPhase, replica: str = "m/1", **changes: Any) -> World:
    """The world in which one shard is so far."""
    launch = assignment(world, replica).launch
    name = launch.places[rank].node
    others = tuple(each for each in world.nodes[name].shards or () if (each.replica, each.rank) != (replica, rank))
    return with_node(world, name, shards=(*others, status_of(launch, rank, phase, **changes)))


def fails(world: World, rank: int = 0, kind: str = "crashed", at: float = NOW, **changes: Any) -> World:
    return says(world, rank, ShardPhase.STOPPING, failure=ShardFailure(kind, f"{kind} here", at=at, **changes))


def nothing_runs(world: World) -> World:
    return evolve(world, nodes={name: evolve(node, shards=()) for name, node in world.nodes.items()})


def orders(decision: Decision) -> list[str]:
    """`run gpu-0 #0`, `stop gpu-1 m/1.3 #1`."""
    said = []
    for each in decision.orders:
        match each.order:
            case RunShard(launch=_, rank=rank, stage=stage):
                said.append(f"{stage.value} {each.node} #{rank}")
            case StopShard(replica=replica, generation=generation, rank=rank):
                said.append(f"stop {each.node} {replica}.{generation} #{rank}")
    return said


def kinds(decision: Decision) -> list[str]:
    return [each.kind for each in decision.happenings]


# From a catalog to ready.


def test_without_a_catalog_nothing_that_runs_is_touched() -> None:
    running = (ShardStatus("x/1", 7, 0, READY),)
    world = evolve(a_world(Catalog(), [seen_node("gpu-0", shards=running)]), catalog=None)
    assert reconcile(world) == Decision()


def test_all_shards_are_prepared_before_any_is_run() -> None:
    world = on(a_fleet(a_profile(2, 8)))
    assert orders(reconcile(world)) == ["prepare gpu-0 #0", "prepare gpu-1 #1"]
    world = on(says(world, 1, PREPARED))
    assert orders(reconcile(world)) == ["prepare gpu-0 #0", "prepare gpu-1 #1"]
    world = on(says(world, 0, PREPARED))
    assert orders(reconcile(world)) == ["run gpu-1 #1", "run gpu-0 #0"]


def test_where_workers_go_first_the_head_waits_until_they_are_ready() -> None:
    world = is_all(on(a_fleet(a_profile(2, 8), workers_first=True)), PREPARED)
    assert orders(reconcile(world)) == ["run gpu-1 #1", "prepare gpu-0 #0"]
    world = on(says(world, 1, STARTING))
    assert orders(reconcile(world)) == ["run gpu-1 #1", "prepare gpu-0 #0"]
    world = on(says(world, 1, READY))
    assert orders(reconcile(world)) == ["run gpu-1 #1", "run gpu-0 #0"]
    world = on(says(says(world, 0, STARTING), 1, ShardPhase.UNREADY))
    assert orders(reconcile(world)) == ["run gpu-1 #1", "run gpu-0 #0"], "a head that was started stays so"


def test_a_replica_is_ready_when_all_its_shards_are() -> None:
    world = is_all(on(a_fleet(a_profile(2, 8))), PREPARED)
    half = says(as_reported(world, STARTING), 0, READY)
    assert reconcile(half).happenings == ()
    decision = reconcile(later(as_reported(world, READY), 5.0))
    (told,) = decision.happenings
    assert (told.kind, told.reason) == ("replica ready", "m/1, generation 1: ready 5.0 s after it was placed")


def test_a_settled_world_repeats_its_orders_and_changes_nothing() -> None:
    world = ready(a_fleet(a_profile(2, 8)))
    first, second = reconcile(world), reconcile(later(world, 3600.0))
    assert (first.records, second.records, first.happenings) == ((), (), ())
    assert first.orders == second.orders
    assert first.look_again_at is None


# Failure and rebuild.


def test_e06_the_loss_of_any_rank_fails_the_replica_and_stops_all() -> None:
    world = fails(ready(a_fleet(a_profile(2, 8))), rank=1)
    decision = reconcile(world)
    assert kinds(decision) == ["replica failed"]
    assert orders(decision) == ["stop gpu-0 m/1.1 #0", "stop gpu-1 m/1.1 #1"]


def test_e07_the_rebuild_begins_with_the_report_though_the_head_still_runs() -> None:
    world = on(fails(ready(a_fleet(a_profile(2, 8))), rank=1))
    head_left = with_node(world, "gpu-1", shards=())
    assert assignment(on(head_left)).launch.generation == 1, "the head is not gone yet"
    gone = on(nothing_runs(world))
    assert gone.records["m/1"].assignment is None
    assert gone.records["m/1"].not_before == NOW + 10.0
    again = on(later(gone, 10.0))
    assert assignment(again).launch.generation == 2
    assert assignment(again).launch.rendezvous_port != assignment(world).launch.rendezvous_port


def test_e27_nothing_is_started_anew_before_every_rank_is_gone() -> None:
    world = on(fails(ready(a_fleet(a_profile(2, 8))), rank=1))
    unsettled = evolve(
        nothing_runs(world), nodes={**nothing_runs(world).nodes, "gpu-0": seen_node("gpu-0", settled=False)}
    )
    for _ in range(3):
        unsettled = on(later(unsettled, 600.0))
        assert assignment(unsettled).launch.generation == 1
    for shards in (None, ()):
        silent = with_node(nothing_runs(world), "gpu-0", state=NodeState.SUSPECT, shards=shards)
        assert assignment(on(silent)).launch.generation == 1


def test_where_the_head_goes_first_workers_are_stopped_when_it_is_gone() -> None:
    world = on(fails(ready(a_fleet(a_profile(2, 8), head_first=True)), rank=1))
    assert orders(reconcile(world)) == ["stop gpu-0 m/1.1 #0"]
    assert orders(reconcile(with_node(world, "gpu-0", shards=()))) == ["stop gpu-1 m/1.1 #1"]
    silent = with_node(world, "gpu-0", state=NodeState.SUSPECT, shards=None)
    assert orders(reconcile(silent)) == ["stop gpu-1 m/1.1 #1"], "a head that cannot be told keeps nobody waiting"


def test_of_several_failures_the_earliest_that_is_no_lost_peer_is_the_cause() -> None:
    world = ready(a_fleet(a_profile(3, 8)))
    world = fails(fails(fails(world, 0, "peer lost", NOW - 9), 1, "crashed", NOW - 3), 2, "out of memory", NOW - 5)
    failure = on(world).records["m/1"].last_failure
    assert failure is not None
    assert (failure.node, failure.rank, failure.kind) == ("gpu-2", 2, "out of memory")


def test_the_shard_that_went_first_may_say_so_last() -> None:
    world = on(fails(ready(a_fleet(a_profile(2, 8))), 0, "peer lost"))
    assert world.records["m/1"].last_failure is not None
    assert world.records["m/1"].last_failure.kind == "peer lost"
    gone = on(with_node(world, "gpu-1", shards=()))
    assert gone.records["m/1"].last_failure == world.records["m/1"].last_failure, "what was stopped is no cause"
    told = on(fails(world, 1, "killed"))
    record = told.records["m/1"]
    assert record.last_failure is not None
    assert record.first_failure == record.last_failure
    assert (record.last_failure.kind, record.last_failure.node) == ("killed", "gpu-1")
    assert reconcile(told).records == ()


def test_a_lost_peer_is_blamed_on_the_node_that_fell_silent() -> None:
    world = fails(ready(a_fleet(a_profile(2, 8))), 0, "peer lost")
    world = with_node(world, "gpu-1", state=NodeState.SUSPECT, shards=None, last_heard=NOW - 12)
    failure = on(world).records["m/1"].last_failure
    assert failure is not None
    assert failure.node == "gpu-1"
    assert failure.reason == "peer lost here; node gpu-1 has not been heard for 12 s"


def test_a_failure_keeps_what_people_need() -> None:
    world = ready(a_fleet(a_profile(1, 8)))
    told = ShardFailure("out of memory", "CUDA out of memory", "exit code 1", "line 1\nline 2", NOW)
    world = says(world, 0, ShardPhase.FAILED, failure=told, argv=("sim", "--port", "18000"), engine_version="1.0")
    failure = on(world).records["m/1"].last_failure
    assert failure is not None
    assert (failure.exit, failure.log_tail, failure.argv, failure.engine_version, failure.generation) == (
        "exit code 1",
        "line 1\nline 2",
        ("sim", "--port", "18000"),
        "1.0",
        1,
    )


def test_a_groups_failure_says_when_the_log_tells_of_the_fabric() -> None:
    log = "NET/IB : Got completion from peer 10.0.0.2 with status=12 opcode=0 len=0 vendor err 129 error 12"
    world = fails(ready(a_fleet(a_profile(2, 8))), 1, "crashed", log_tail=log)
    assert "check that they are on the one fabric" in reconcile(world).happenings[0].reason
    alone = fails(ready(a_fleet(a_profile(1, 8))), 0, "crashed", log_tail=log)
    assert "fabric" not in reconcile(alone).happenings[0].reason


def test_a_launched_shard_that_is_not_there_any_more_has_failed() -> None:
    world = ready(a_fleet(a_profile(1, 8)))
    decision = reconcile(with_node(world, "gpu-0", shards=()))
    assert kinds(decision) == ["replica failed"]
    assert "has it no longer" in decision.happenings[0].reason
    assert reconcile(with_node(world, "gpu-0", shards=(), settled=False)).records == ()


def test_a_shard_that_was_only_prepared_is_prepared_again() -> None:
    world = on(as_reported(on(a_fleet(a_profile(2, 8))), ShardPhase.PREPARING))
    decision = reconcile(with_node(world, "gpu-1", shards=()))
    assert (decision.records, orders(decision)) == ((), ["prepare gpu-0 #0", "prepare gpu-1 #1"])


def slow(deadline_s: float, nodes: int = 1) -> World:
    return a_fleet(a_profile(nodes, 8, health=HealthTimings(start_deadline_s=deadline_s)))


def test_e09_a_start_takes_as_long_as_its_profile_allows() -> None:
    world = is_all(is_all(on(slow(400.0)), PREPARED), STARTING)
    assert reconcile(later(world, 399.0)).records == ()
    assert reconcile(world).look_again_at == NOW + 400.0
    assert kinds(reconcile(later(as_reported(world, READY), 401.0))) == ["replica ready"], "ready is ready"


def test_e18_a_group_that_is_not_ready_in_its_time_is_stopped_as_a_whole() -> None:
    world = is_all(is_all(on(slow(600.0, nodes=2)), PREPARED), STARTING)
    world = says(says(world, 0, STARTING, reason="waits for 1 worker"), 1, READY)
    decision = reconcile(later(world, 600.0))
    assert decision.happenings[0].reason == (
        "m/1, generation 1, rank 0: not ready in time: "
        "not ready 600 s after it was placed: rank 0 on gpu-0 is starting: waits for 1 worker"
    )
    assert orders(decision) == ["stop gpu-0 m/1.1 #0", "stop gpu-1 m/1.1 #1"]


def test_the_deadline_is_that_of_today_and_waits_for_a_node_that_does_not_speak() -> None:
    world = is_all(is_all(on(slow(600.0)), PREPARED), STARTING)
    silent = with_node(world, "gpu-0", state=NodeState.SUSPECT, shards=None)
    assert reconcile(later(silent, 900.0)).records == ()
    ((name, offer),) = world.offers.items()
    patient = evolve(offer, profile=evolve(offer.profile, health=HealthTimings(start_deadline_s=900.0)))
    (renewed,) = reconcile(later(evolve(world, offers={name: patient}), 601.0)).records
    assert (renewed.assignment is not None, renewed.failures, renewed.last_failure) == (True, 0, None)
    assert assignment(on(evolve(world, offers={name: patient}))).launch.offer == patient, "and its nodes are told"


def test_a_replica_that_was_stable_begins_to_count_anew() -> None:
    world = ready(a_fleet(a_profile(1, 8)))
    stained = {"m/1": evolve(world.records["m/1"], failures=4, failed_on={"gpu-0": 2})}
    soon = on(nothing_runs(on(fails(evolve(world, records=stained)))))
    assert (soon.records["m/1"].failures, soon.records["m/1"].not_before) == (5, NOW + 160.0)
    old = later(evolve(world, records=stained), STABLE_S)
    assert reconcile(evolve(old, now=NOW)).look_again_at == NOW + STABLE_S
    assert on(old).records["m/1"].failures == 0
    assert dict(on(nothing_runs(on(fails(old)))).records["m/1"].failed_on) == {"gpu-0": 1}


def test_the_first_failure_of_a_loop_is_kept() -> None:
    world = a_fleet(a_profile(1, 8), nodes=1)
    for kind in ("out of memory", "crashed", "killed"):
        world = ready(later(world, 400.0))
        world = on(nothing_runs(on(fails(world, 0, kind))))
    record = world.records["m/1"]
    assert record.first_failure is not None
    assert record.last_failure is not None
    assert (record.first_failure.kind, record.last_failure.kind, record.failures) == ("out of memory", "killed", 3)


def test_another_command_is_tried_at_once_after_failures_of_the_old_one() -> None:
    world = on(nothing_runs(on(fails(ready(a_fleet(a_profile(1, 8)))))))
    assert world.records["m/1"].assignment is None
    fixed = a_fleet(a_profile(1, 8, extra_args=("--less-memory",)))
    again = on(evolve(fixed, records=world.records))
    assert assignment(again).launch.generation == 2
    assert again.records["m/1"].failures == 0


def test_a_refused_command_goes_to_another_node() -> None:
    world = on(fails(on(a_fleet(a_profile(1, 8))), 0, "bad arguments"))
    world = later(on(nothing_runs(world)), 10.0)
    assert assignment(on(world)).launch.places[0].node == "gpu-1"


def test_a_refusal_counts_for_the_engine_that_the_shard_was_given_to() -> None:
    world = on(a_fleet(a_profile(1, 8)))
    told = ShardFailure("bad arguments", "it has no flag --fast", at=NOW)
    world = says(world, 0, ShardPhase.FAILED, failure=told, help_digest="of the upgraded one")
    assert list(on(world).records["m/1"].refused_by.values()) == ["of the upgraded one"]


def test_a_taken_port_costs_no_waiting_and_another_port_is_tried() -> None:
    world = on(a_fleet(a_profile(1, 8), nodes=1))
    again = on(nothing_runs(on(fails(world, 0, "port in use"))))
    assert assignment(again).launch.generation == 2
    assert assignment(again).launch.places[0].port != assignment(world).launch.places[0].port


# Nodes that fall silent and come back.


def silent(world: World, *names: str, ago: float = 61.0, state: NodeState = NodeState.LOST) -> World:
    for name in names:
        world = with_node(world, name, state=state, shards=None, settled=False, last_heard=world.now - ago)
    return world


def test_f37_a_lost_node_leads_to_the_same_rebuild_as_a_crash() -> None:
    world = silent(ready(a_fleet(a_profile(2, 8))), "gpu-1")
    decision = reconcile(world)
    assert kinds(decision) == ["replica failed"]
    assert orders(decision) == ["stop gpu-0 m/1.1 #0"]
    gone = on(with_node(on(world), "gpu-0", shards=()))
    assert gone.records["m/1"].failures == 1
    again = assignment(gone)  # at once: it goes to another node in any case
    assert [place.node for place in again.launch.places] == ["gpu-0", "gpu-2"]


@pytest.mark.parametrize("state", [NodeState.SUSPECT, NodeState.WAITING])
def test_f07_who_is_not_back_yet_keeps_what_it_has_and_gets_nothing(state: NodeState) -> None:
    world = silent(ready(a_fleet(a_profile(1, 8), nodes=1)), "gpu-0", state=state)
    more = evolve(world, wanted={"m": 2})
    assert [each.id for each in reconcile(more).records] == ["m/2"]
    assert reconcile(more).unplaced["m/2"].endswith(f"gpu-0 is {state.value}")
    assert (reconcile(world).records, reconcile(world).orders) == ((), ())


def test_f07_what_comes_back_as_it_was_is_adopted() -> None:
    world = ready(a_fleet(a_profile(2, 8)))
    back = as_reported(with_node(silent(world, "gpu-0"), "gpu-0", state=NodeState.ONLINE, shards=()), READY)
    decision = reconcile(back)
    assert (decision.records, decision.happenings) == ((), ())
    assert orders(decision) == ["run gpu-1 #1", "run gpu-0 #0"]


def test_f06_what_runs_and_belongs_to_nobody_is_stopped() -> None:
    world = ready(a_fleet(a_profile(1, 8), nodes=2))
    left = (ShardStatus("m/1", 1, 0, READY, gpus=("GPU-0",)), ShardStatus("gone/5", 9, 1, READY, gpus=("GPU-1",)))
    moved = {"m/1": evolve(world.records["m/1"], generation=2, assignment=None)}
    world = with_node(evolve(world, records=moved), "gpu-0", shards=left)
    world = with_node(world, "gpu-1", shards=())
    decision = reconcile(world)
    assert orders(decision)[:2] == ["stop gpu-0 m/1.1 #0", "stop gpu-0 gone/5.9 #1"]
    assert [place.node for place in assignment(decided(world, decision)).launch.places] == ["gpu-1"]


def test_a_generation_is_above_all_that_any_node_reports() -> None:
    world = a_fleet(a_profile(1, 8), nodes=2)
    world = with_node(world, "gpu-0", shards=(ShardStatus("m/1", 41, 0, READY),))
    assert assignment(on(world)).launch.generation == 42


def test_a_generation_is_above_what_a_node_reported_before_it_was_placed() -> None:
    """Its record is lost, and the only node ends the old attempt first: two of one number would be one to its agent."""
    world = a_fleet(a_profile(1, 8), nodes=1)
    stale = on(with_node(world, "gpu-0", shards=(ShardStatus("m/1", 41, 0, READY),)))
    assert stale.records["m/1"].assignment is None
    assert assignment(on(with_node(stale, "gpu-0", shards=()))).launch.generation == 42


def test_an_attempt_older_than_what_its_node_reports_gives_way() -> None:
    world = ready(a_fleet(a_profile(1, 8), nodes=2))
    seen = (*(world.nodes["gpu-0"].shards or ()), ShardStatus("m/1", 41, 0, READY))
    world = with_node(world, "gpu-0", shards=seen)
    decision = reconcile(world)
    assert orders(decision) == ["stop gpu-0 m/1.41 #0", "stop gpu-0 m/1.1 #0"]
    after = on(nothing_runs(decided(world, decision)))
    assert assignment(after).launch.generation == 42, "though nothing reports 41 now"


def test_what_serves_is_not_stopped_by_what_another_node_claims() -> None:
    world = ready(a_fleet(a_profile(1, 8), nodes=2))
    claimed = (ShardStatus("m/1", 41, 0, READY),)
    decision = reconcile(with_node(world, "gpu-1", shards=claimed))
    assert (decision.records, orders(decision)) == ((), ["stop gpu-1 m/1.41 #0", "run gpu-0 #0"])


def test_no_claim_uses_up_the_generations() -> None:
    """A number over 64 bits cannot be said to a node: its link would break, again and again."""
    world = a_fleet(a_profile(1, 8), nodes=2)
    world = with_node(world, "gpu-0", shards=(ShardStatus("m/1", 2**63 - 1, 0, READY),))
    assert assignment(on(world)).launch.generation == 1


def test_f09_a_mass_loss_takes_no_replica_from_anybody() -> None:
    world = ready(a_fleet(a_profile(1, 8), nodes=9, replicas=9))
    two = reconcile(silent(world, "gpu-0", "gpu-1"))
    assert two.records == ()
    assert two.guarded == ("2 of 9 nodes fell silent together (gpu-0, gpu-1): none of them loses its replicas",)
    one = reconcile(silent(world, "gpu-0"))
    assert (kinds(one), one.guarded) == (["replica failed"], ())


def test_a_node_that_was_removed_has_lost_its_replicas() -> None:
    world = ready(a_fleet(a_profile(1, 8)))
    left = {name: node for name, node in world.nodes.items() if name != "gpu-0"}
    decision = reconcile(evolve(world, nodes=left))
    assert decision.happenings[0].reason.endswith("node gpu-0 was removed")
    (record,) = decision.records
    assert record.assignment is not None
    assert record.assignment.launch.places[0].node == "gpu-1"


# More, fewer, other replicas.


def test_new_replicas_take_the_smallest_free_ordinals() -> None:
    world = ready(a_fleet(a_profile(1, 2), replicas=3))
    fewer = on(evolve(says(world, 0, ShardPhase.UNREADY, "m/2"), wanted={"m": 2}))
    assert assignment(fewer, "m/2").stopping == "2 replicas of m are enough"
    gone = on(with_node(fewer, assignment(fewer, "m/2").launch.places[0].node, shards=()))
    assert gone.records["m/2"].retired
    assert gone.records["m/2"].failures == 0
    again = on(evolve(gone, wanted={"m": 3}))
    assert not again.records["m/2"].retired
    assert assignment(again, "m/2").launch.generation == 2


def test_who_is_wanted_again_begins_with_nothing_counted() -> None:
    world = on(fails(ready(a_fleet(a_profile(1, 2)))))
    retired = on(nothing_runs(on(evolve(world, wanted={"m": 0}))))
    assert (retired.records["m/1"].retired, retired.records["m/1"].failures) == (True, 1)
    again = on(evolve(retired, wanted={"m": 1}))
    assert (again.records["m/1"].failures, assignment(again).launch.generation) == (0, 2), "and does not wait"


def test_of_too_many_the_highest_ordinals_go_when_all_are_ready() -> None:
    world = on(evolve(ready(a_fleet(a_profile(1, 2), replicas=3)), wanted={"m": 1}))
    assert [each.id for each in world.records.values() if each.assignment and each.assignment.stopping] == [
        "m/2",
        "m/3",
    ]


def test_a_model_that_left_the_catalog_is_taken_down_and_its_generations_are_kept() -> None:
    world = ready(a_fleet(a_profile(1, 2)))
    world = evolve(world, catalog=Catalog(), offers={}, wanted={})
    decision = reconcile(world)
    assert orders(decision) == ["stop gpu-0 m/1.1 #0"]
    gone = on(nothing_runs(decided(world, decision)))
    assert gone.records == {"m/1": ReplicaRecord("m/1", "m", 1, last_ports=(18000,), retired=True)}
    assert reconcile(gone) == Decision()


def changed(world: World) -> World:
    """The same model with another command, which every node accepts."""
    assert world.catalog is not None
    profiles = {name: evolve(each, extra_args=("--other",)) for name, each in world.catalog.profiles.items()}
    catalog = evolve(world.catalog, profiles=profiles)
    offers = offers_of(catalog)
    nodes = {
        name: evolve(node, facts=accepting(node.facts, offers.values())) if node.facts else node
        for name, node in world.nodes.items()
    }
    return evolve(world, catalog=catalog, offers=offers, nodes=nodes)


def test_what_never_was_ready_is_started_anew_at_once_when_its_profile_changes() -> None:
    world = changed(is_all(is_all(on(a_fleet(a_profile(1, 8), replicas=3)), PREPARED), STARTING))
    decision = reconcile(world)
    assert orders(decision) == [f"stop gpu-{n} m/{n + 1}.1 #0" for n in range(3)]


def test_a_planned_stop_is_no_failure() -> None:
    starting = is_all(is_all(on(a_fleet(a_profile(1, 8))), PREPARED), STARTING)
    world = on(nothing_runs(on(changed(starting))))
    record = world.records["m/1"]
    assert (record.failures, record.last_failure) == (0, None)
    assert assignment(world).launch.generation == 2


# Time.


def test_nothing_changes_before_look_again_at_and_something_may_at_it() -> None:
    world = on(nothing_runs(on(fails(ready(a_fleet(a_profile(1, 8)))))))
    at = reconcile(world).look_again_at
    assert at == NOW + 10.0
    before = reconcile(evolve(world, now=at - 0.001))
    assert (before.records, before.orders, before.unplaced) == ((), (), {})
    assert kinds(reconcile(evolve(world, now=at))) == ["replica placed"]


def test_an_unanswered_offer_is_no_reason_to_look_again() -> None:
    world = with_node(a_fleet(a_profile(), nodes=1), "gpu-0", facts=node_facts(offers=(OfferChecked("other"),)))
    decision = reconcile(on(world))
    assert decision.unplaced == {"m/1": "needs a node; gpu-0 has not answered this offer yet"}
    assert decision.look_again_at is None


def test_of_too_many_one_whose_failure_has_just_come_to_an_end_is_kept_before_those_that_stop() -> None:
    """What was kept a moment ago is not given up in the next pass for one that is being stopped."""
    world = ready(a_fleet(a_profile(1, 8), nodes=3, replicas=3))
    stopping = {
        name: evolve(world.records[name], assignment=evolve(assignment(world, name), stopping="2 are enough"))
        for name in ("m/1", "m/2")
    }
    world = evolve(world, records={**world.records, **stopping}, wanted={"m": 1})
    world = with_node(world, assignment(world, "m/3").launch.places[0].node, shards=())
    after = on(world)
    assert after.records["m/3"].assignment is None, "nobody stopped it, and it is gone"
    assert reconcile(after).records == ()

"""The keys that engines ask for: who gets one, and where it stands."""

from __future__ import annotations

import json

from attrs import evolve

from llmgw_core.model.launch import Launch, RunShard
from llmgw_core.plan.engine_key import make_engine_key
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.world import World
from llmgw_core.testing.made_world import a_catalog, a_profile, a_world, accepting, decided, node_facts, seen_node
from llmgw_core.wire.record import parse_record, render_record

SEED = "5eed" * 16


def world_with(takes_key: bool = True, **profile: object) -> World:
    world = a_world(a_catalog({"m": a_profile(1, 1, **profile)}, 2), [], seed=SEED)
    facts = accepting(node_facts(8), world.offers.values(), takes_key=takes_key)
    return evolve(world, nodes={"gpu-0": seen_node("gpu-0", facts)})


def launches(world: World) -> list[Launch]:
    placed = [record.assignment for record in reconcile(world).records]
    return [each.launch for each in placed if each is not None]


def test_each_attempt_has_a_key_of_its_own_with_256_bits() -> None:
    keys = [launch.key for launch in launches(world_with())]
    assert len(set(keys)) == 2
    assert {len(key) for key in keys} == {43}
    others = [launch.key for launch in launches(evolve(world_with(), seed="other"))]
    assert not set(others) & set(keys)


def test_the_next_generation_has_another_one() -> None:
    assert make_engine_key(SEED, "m/1", 1) != make_engine_key(SEED, "m/1", 2)


def test_where_no_key_can_be_or_should_be_there_is_none() -> None:
    assert [launch.key for launch in launches(world_with(takes_key=False))] == ["", ""]
    assert [launch.key for launch in launches(world_with(engine_key=False))] == ["", ""]
    assert [launch.key for launch in launches(evolve(world_with(), seed=""))] == ["", ""]


def test_the_nodes_and_the_gateways_are_told_and_it_stays_whatever_the_next_seed() -> None:
    world = world_with()
    decision = reconcile(world)
    stored = {record.id: record.assignment.launch.key for record in decision.records if record.assignment}
    orders = [each.order for each in decision.orders if isinstance(each.order, RunShard)]
    assert {order.launch.replica: order.launch.key for order in orders} == stored
    again = reconcile(evolve(decided(world, decision), seed="other"))
    assert again.records == ()
    assert again.orders == decision.orders


def test_a_record_keeps_its_key_and_one_of_before_has_none() -> None:
    record = reconcile(world_with()).records[0]
    assert parse_record(render_record(record)) == record
    plain = json.loads(render_record(record))
    del plain["assignment"]["launch"]["key"]
    old = parse_record(json.dumps(plain))
    assert old.assignment is not None
    assert old.assignment.launch.key == ""


def test_no_key_is_in_a_repr() -> None:
    world = world_with()
    decision = reconcile(world)
    keys = [record.assignment.launch.key for record in decision.records if record.assignment]
    told = f"{decision!r} {decided(world, decision)!r}"
    assert not [key for key in (*keys, SEED) if key in told]

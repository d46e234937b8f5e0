"""What is planned to stop leaves the gateways' tables first, and waits for the requests that they still have there."""

from __future__ import annotations

from attrs import evolve

from llmgw_core.model.launch import StopShard
from llmgw_core.plan.attempt import orders_of
from llmgw_core.plan.parting import Gateways, attempt_of, is_told
from llmgw_core.plan.reconcile import reconcile
from llmgw_core.plan.sighting import look_at
from llmgw_core.plan.world import Decision, ObservedGateway
from llmgw_core.testing.law import pass_of
from llmgw_core.testing.light_fleet import LightFleet, LightGateway
from llmgw_core.testing.made_world import a_profile
from llmgw_core.testing.moving_fleet import (
    change,
    crash,
    flap,
    goal,
    home,
    move_of,
    original,
    record,
    replacement,
    scale,
    settled,
    step,
    until,
    until_leaving,
    until_ready,
)

IN_FLIGHT_S = 120.0


def with_gateway(fleet: LightFleet, name: str = "edge") -> LightGateway:
    """One that has taken the table as it is, and takes the next one only when it is told to."""
    gateway = fleet.connect_gateway(name, slow=True)
    pass_of(fleet)
    gateway.take()
    pass_of(fleet)
    return gateway


def draining(extra: int = 1) -> tuple[LightFleet, LightGateway]:
    """A replica of which the replacement is ready and holds."""
    fleet = settled(extra=extra)
    gateway = with_gateway(fleet)
    fleet.drain(*home(fleet))
    until_ready(fleet)
    return fleet, gateway


def held() -> tuple[LightFleet, LightGateway]:
    """Its original is to go, and its gateway has not taken a table without it."""
    fleet, gateway = draining()
    gateway.take()
    until_leaving(fleet)
    assert original(fleet).held_since is not None
    return fleet, gateway


def told(decision: Decision) -> list[str]:
    return [each.reason for each in decision.happenings if each.kind.endswith("not waited for")]


def stops(decision: Decision) -> list[tuple[str, int]]:
    orders = (each.order for each in decision.orders)
    return [(order.replica, order.generation) for order in orders if isinstance(order, StopShard)]


def pass_time(fleet: LightFleet, seconds: float) -> list[str]:
    """Half a second after the other; what happened beside."""
    found = []
    for _ in range(int(seconds * 2)):
        found += told(step(fleet))
    return found


def test_without_a_gateway_nothing_waits() -> None:
    fleet = settled(extra=1)
    fleet.drain(*home(fleet))
    decision = until_leaving(fleet)
    assert is_told(original(fleet))
    assert stops(decision) == [("m/1", 1)]


def test_an_original_serves_until_every_gateway_knows_its_replacement() -> None:
    fleet, gateway = draining()
    other = with_gateway(fleet, "other")
    pass_time(fleet, 15.0)
    assert not original(fleet).stopping, "the soak is over, and one gateway has no table with the replacement"
    gateway.take()
    step(fleet)
    assert original(fleet).stopping
    assert (gateway.routes, other.routes) == (frozenset({("m/1", 1), ("m/1", 2)}),) * 2


def test_it_leaves_the_table_first_and_stops_when_no_request_is_left_there() -> None:
    fleet, gateway = held()
    decision = step(fleet)
    assert [target.generation for target in decision.routes[0].targets] == [2]
    assert stops(decision) == []
    gateway.take()
    assert gateway.lingering == {("m/1", 1): 1}
    assert stops(step(fleet)) == []
    gateway.finish()
    decision = step(fleet)
    assert stops(decision) == [("m/1", 1)]
    assert told(decision) == []
    until(fleet, lambda: record(fleet).move is None)


def test_its_nodes_hear_the_same_orders_as_before_while_it_is_held() -> None:
    fleet, _ = held()
    kept = original(fleet)
    seen = look_at(kept.launch, fleet.world.nodes, frozenset())
    serving = evolve(kept, stopping="", held_since=None)
    assert list(orders_of(kept, seen)) == list(orders_of(serving, seen))


def test_requests_that_do_not_end_are_waited_for_as_long_as_the_profile_says() -> None:
    fleet, gateway = held()
    gateway.take()
    assert pass_time(fleet, IN_FLIGHT_S - 2.0) == []
    assert not is_told(original(fleet))
    (said,) = pass_time(fleet, 3.0)
    assert said == "m/1, generation 1, stops: edge still has 1 requests there after 120 s"


def test_a_gateway_that_takes_no_table_is_waited_for_as_long_as_silence_is_borne_and_then_named() -> None:
    fleet, _ = held()
    assert pass_time(fleet, 58.0) == []
    assert not is_told(original(fleet))
    (said,) = pass_time(fleet, 3.0)
    told_of = "edge has not been heard, or took no table, for 60 s, and may still send requests there"
    assert said == f"m/1, generation 1, stops: {told_of}"


def test_so_is_one_that_has_gone() -> None:
    fleet, _ = held()
    step(fleet)
    fleet.cut_gateway("edge")
    pass_time(fleet, 58.0)
    assert not is_told(original(fleet))
    pass_time(fleet, 3.0)
    assert not record(fleet).attempts[1:], "it went on"


def test_one_that_went_long_ago_keeps_nobody_waiting() -> None:
    fleet = settled(extra=1)
    with_gateway(fleet)
    fleet.cut_gateway("edge")
    pass_time(fleet, 75.0)
    fleet.drain(*home(fleet))
    assert told(until_leaving(fleet)) == []
    assert is_told(original(fleet))


def test_one_that_does_not_know_the_replacement_is_named_when_the_original_goes_nevertheless() -> None:
    fleet, _ = draining()
    fleet.cut_gateway("edge")
    (said,) = told(until_leaving(fleet))
    assert said.startswith("m/1, generation 1, stops: edge has not been heard")
    assert is_told(original(fleet))


def test_of_one_that_has_just_come_nothing_is_known_and_it_is_waited_for() -> None:
    fleet, gateway = held()
    gateway.take()
    gateway.finish()
    fleet.connect_gateway("new", slow=True)
    decision = step(fleet)
    assert stops(decision) == []
    fleet.gateways["new"].take()
    fleet.gateways["new"].finish()
    assert stops(step(fleet)) == [("m/1", 1)]


def test_after_a_restart_the_gateways_of_before_are_waited_for_until_they_are_back_or_silent_for_too_long() -> None:
    fleet, _ = held()
    world = fleet.look()
    unknown = evolve(world, gateways=(ObservedGateway("edge", None, silent_since=world.now),))
    assert stops(reconcile(unknown)) == []
    assert reconcile(unknown).look_again_at == world.now + 60.0
    later = evolve(unknown, now=world.now + 60.0)
    assert stops(reconcile(later)) == [("m/1", 1)]


def test_a_failure_never_waits() -> None:
    fleet = settled(extra=1)
    with_gateway(fleet)
    crash(fleet, original(fleet))
    decision = pass_of(fleet)
    assert stops(decision) == [("m/1", 1)]
    assert decision.routes[0].targets == ()


def test_what_fails_while_it_is_held_waits_no_longer() -> None:
    fleet, _ = held()
    crash(fleet, original(fleet))
    assert stops(pass_of(fleet)) == [("m/1", 1)]
    assert record(fleet).failures == 0, "it was to go anyway"


def test_a_replacement_that_fails_while_its_original_is_held_costs_the_original_nothing() -> None:
    fleet, _ = held()
    crash(fleet, replacement(fleet))
    decision = pass_of(fleet)
    assert not original(fleet).stopping
    assert [target.generation for target in decision.routes[0].targets] == [1]
    assert move_of(fleet).tries == 1


def test_so_does_one_that_is_not_ready_for_a_moment() -> None:
    fleet, gateway = held()
    there = goal(fleet)
    flap(fleet, replacement(fleet))
    assert [target.generation for target in pass_of(fleet).routes[0].targets] == [1]
    gateway.slow = False
    until(fleet, lambda: record(fleet).move is None)
    assert home(fleet) == there


def test_an_undrain_while_the_original_is_held_lets_it_go_on() -> None:
    fleet, gateway = held()
    fleet.undrain(*home(fleet))
    step(fleet)
    assert not original(fleet).stopping
    assert replacement(fleet).held_since is not None, "it takes requests by now, and so is held itself"
    gateway.slow = False
    until(fleet, lambda: record(fleet).move is None)
    assert record(fleet).generation == 2
    assert original(fleet).launch.generation == 1


def test_a_scale_down_while_it_is_held_takes_both() -> None:
    fleet, gateway = held()
    scale(fleet, "m", 0)
    decision = step(fleet)
    assert decision.routes[0].targets == ()
    gateway.slow = False
    until(fleet, lambda: record(fleet).retired)


def test_a_scale_down_and_a_model_that_goes_wait_too() -> None:
    fleet = settled({"m": a_profile(1, 8), "n": a_profile(1, 8)}, nodes=3)
    gateway = with_gateway(fleet)
    scale(fleet, "m", 0)
    catalog = fleet.world.catalog
    assert catalog is not None
    fleet.world = evolve(fleet.world, catalog=evolve(catalog, models={"m": catalog.models["m"]}))
    assert stops(pass_of(fleet)) == []
    gateway.take()
    assert stops(step(fleet)) == []
    gateway.finish()
    assert sorted(stops(step(fleet))) == [("m/1", 1), ("n/1", 1)]


def test_who_stops_first_for_want_of_room_waits_too() -> None:
    fleet = settled(nodes=1)
    gateway = with_gateway(fleet)
    change(fleet, "m")
    fleet.ask_again("m", stop_first=True)
    decision = pass_of(fleet)
    assert original(fleet).stopping
    assert (stops(decision), decision.routes[0].targets) == ([], ())
    gateway.take()
    gateway.finish()
    assert stops(step(fleet)) == [("m/1", 1)]


def test_what_never_was_ready_waits_for_nobody() -> None:
    fleet = settled(extra=1)
    with_gateway(fleet)
    fleet.connect_gateway("new", slow=True)
    fleet.drain(*home(fleet))
    until(fleet, lambda: goal(fleet))
    fleet.undrain(*home(fleet))
    decision = pass_of(fleet)
    assert stops(decision) == [("m/1", 2)]


def test_a_clock_that_was_set_back_holds_nothing_for_longer() -> None:
    fleet, gateway = held()
    gateway.take()
    fleet.world = evolve(fleet.world, now=fleet.world.now - 1000.0)
    pass_of(fleet)
    assert original(fleet).held_since == fleet.world.now


def test_many_gateways_are_named_in_part() -> None:
    fleet, _ = held()
    kept = original(fleet)
    seen = tuple(ObservedGateway(f"edge-{n}", frozenset({attempt_of(kept)})) for n in range(5))
    said = Gateways(fleet.world.now, 60.0, seen).why_held(kept)
    assert said == "edge-0, edge-1, edge-2 and others may still send requests there"

"""What the planner never does and always reaches, whatever happens to a fleet of simulated agents.

`LLMGW_HISTORIES=10000` tries so many histories instead of a quick sample.
"""

import os
from collections import Counter
from itertools import combinations

from attrs import evolve
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.drain import Drain
from llmgw_core.plan.drain import DrainState, drain_status, plan_drain
from llmgw_core.plan.move import nodes_of
from llmgw_core.plan.moving import ANSWERS
from llmgw_core.plan.restart import refusal_mark
from llmgw_core.plan.world import Decision, ObservedNode, World
from llmgw_core.testing.history import DRAINS, FAULTS, PEACEFUL, Event, events, fleets, happen
from llmgw_core.testing.law import come_to_rest, gpus_of, launches_of, pass_of, serving, wanted_of
from llmgw_core.testing.light_fleet import LightFleet

HISTORIES = int(os.environ.get("LLMGW_HISTORIES", "0"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def histories(sample: int) -> settings:
    return settings(
        max_examples=HISTORIES or sample, deadline=None, derandomize=not HISTORIES, suppress_health_check=SLOW
    )


@histories(150)
@given(fleets(), st.lists(events(*PEACEFUL, *DRAINS, *FAULTS), max_size=80), st.booleans())
def test_whatever_happens_the_laws_hold_and_in_the_end_all_that_fits_is_ready(
    fleet: LightFleet, history: list[Event], from_rest: bool
) -> None:
    if from_rest:
        come_to_rest(fleet)
    for event in history:
        happen(fleet, event)
        pass_of(fleet)
    check_drains(fleet, come_to_rest(fleet))
    for name in tuple(fleet.world.drains):
        fleet.undrain(name)
    check_all_that_fits_is_ready(fleet, come_to_rest(fleet))


@histories(150)
@given(fleets(), st.lists(events(*PEACEFUL, *DRAINS), max_size=80))
def test_without_a_fault_no_drain_and_no_change_makes_fewer_ready(fleet: LightFleet, history: list[Event]) -> None:
    """Counted is what really is ready and not about to stop; only who wants fewer replicas gets fewer."""
    come_to_rest(fleet)
    least = serving(fleet)
    for event in history:
        happen(fleet, event, stop_first=False)
        for model in least:
            least[model] = min(least[model], wanted_of(fleet.world, model))
        pass_of(fleet)
        check_least(fleet, least)
    check_drains(fleet, come_to_rest(fleet))
    check_least(fleet, least)


def check_least(fleet: LightFleet, least: Counter[str]) -> None:
    """`least` rises with what is ready."""
    now = serving(fleet)
    for model in {*least, *now}:
        assert now[model] >= least[model], f"{model}: {now[model]} are ready, there were {least[model]}"
        least[model] = now[model]


def check_drains(fleet: LightFleet, decision: Decision) -> None:
    """At rest a draining node is empty, or says of each replica that stays why."""
    for name in fleet.world.drains:
        status = drain_status(name, fleet.world, decision.blocked)
        silent = any(why.startswith(ANSWERS) for why in status.left.values())  # some nodes here never answer
        assert silent or status.state is not DrainState.DRAINING, status
        assert all(status.left.values())
        assert (status.state is DrainState.DRAINED) == (not fleet.nodes[name].shards)
        for replica in status.left:
            assignment = fleet.world.records[replica].assignment
            assert assignment is not None
            assert fleet.is_up(assignment)


@histories(60)
@given(fleets(willing=True), st.sets(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 2), st.booleans())
def test_a_drain_does_what_its_plan_says_when_nothing_else_happens(
    fleet: LightFleet, nodes: set[int], parallel: int, stop_first: bool
) -> None:
    come_to_rest(fleet)
    names = [name for n, name in enumerate(sorted(fleet.nodes)) if n in nodes]
    assume(names)
    drains = [Drain(name, "an operator", fleet.world.now, None, stop_first, parallel) for name in names]
    planned = plan_drain(fleet.world, drains)
    fleet.world = evolve(fleet.world, drains={drain.node: drain for drain in drains})
    decision = come_to_rest(fleet)
    for move in planned:
        assignment = fleet.world.records[move.replica].assignment
        assert assignment is not None
        assert nodes_of(assignment) == (move.target or move.source)
        assert decision.blocked.get(move.replica, "") == move.reason
    there = {name for name, record in fleet.world.records.items() if record.attempts}
    assert {move.replica for move in planned} <= there


def check_all_that_fits_is_ready(fleet: LightFleet, decision: Decision) -> None:
    world = fleet.world
    assert world.catalog is not None
    for name in world.catalog.models:
        wanted = [each for each in world.records.values() if each.model == name and not each.retired]
        assert len(wanted) == world.wanted[name]
        for record in wanted:
            if record.assignment is None:
                assert decision.unplaced[record.id]
                assert len(decision.unplaced[record.id]) <= 310
                assert not fits_somewhere(world, record)
            else:
                assert record.assignment.ready_at is not None
    running = {(s.replica, s.generation, s.rank) for n in fleet.nodes.values() for s in n.shards.values()}
    assert running == {
        (launch.replica, launch.generation, r) for launch in launches_of(world) for r in range(len(launch.places))
    }


def fits_somewhere(world: World, record: ReplicaRecord) -> bool:
    """The same question, asked in the plainest way."""
    for (name, _), offer in world.offers.items():
        if name != record.model:
            continue
        fit = []
        for node in world.nodes.values():
            assert node.facts is not None
            answer = next((each for each in node.facts.offers if each.key == offer.key), None)
            whole = {gpu.uuid for gpu in node.facts.gpus.gpus if not gpu.trouble}
            free = len(whole - {gpu for where, gpu in gpus_of(world) if where == node.name})
            refused = record.refused_by.get(refusal_mark(node.name, offer)) == node.facts.engines[0].help_digest
            able = answer and not answer.refusal and not answer.weights and not refused
            if able and free >= offer.profile.gpus_per_node:
                fit.append(node)
        if any(_together(group) for group in combinations(fit, offer.profile.nodes)):
            return True
    return False


def _together(group: tuple[ObservedNode, ...]) -> bool:
    if len(group) == 1:
        return True
    facts = [node.facts for node in group if node.facts]
    same = len({(each.engines[0].version, each.engines[0].help_digest) for each in facts}) == 1
    return same and bool(set.intersection(*({fabric.name for fabric in each.fabrics} for each in facts)))

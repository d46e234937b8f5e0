"""How a replica is, in one word and one line."""

from typing import Any

import pytest
from attrs import evolve

from llmgw_core.model.deployment import Assignment, Move, MoveKind, ReplicaFailure, ReplicaRecord
from llmgw_core.model.launch import Launch, Place
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.replica_state import ReplicaState, Standing, replica_state
from llmgw_core.testing.made_world import NOW, a_profile, an_offer, seen_node, status_of

OFFER = an_offer("m", "/models/m", "p", a_profile(2, 1))
LAUNCH = Launch("m/1", 1, OFFER, (Place("gpu-1", "192.0.2.1", 18000), Place("gpu-2", "192.0.2.2", 18000)), 19000)
PLACED = Assignment(LAUNCH, NOW)
FAILURE = ReplicaFailure(NOW, 1, "gpu-1", 0, "crashed", "segmentation fault")


def state(assignment: Assignment | None, *phases: ShardPhase | None, unplaced: str = "", **changes: Any) -> str:
    """`word: reason`; a phase that is `None` stands for a node that does not speak."""
    nodes = {
        place.node: seen_node(place.node, shards=(status_of(LAUNCH, rank, phase, reason="so far"),))
        if phase
        else seen_node(place.node, state=NodeState.SUSPECT, shards=None)
        for rank, (place, phase) in enumerate(zip(LAUNCH.places, phases, strict=False))
    }
    record = ReplicaRecord("m/1", "m", 1, assignment, **changes)
    found: Standing = replica_state(record, nodes, NOW, unplaced)
    return f"{found.state.value}: {found.reason}"


READY, STARTING, UNREADY = ShardPhase.READY, ShardPhase.STARTING, ShardPhase.UNREADY
WAS_READY = evolve(PLACED, ready_at=NOW)


@pytest.mark.parametrize(
    ("assignment", "phases", "expected"),
    [
        (PLACED, (READY, READY), "ready: "),
        (PLACED, (STARTING, READY), "starting: rank 0 on gpu-1 is starting: so far"),
        (PLACED, (STARTING, ShardPhase.PREPARED), "starting: rank 1 on gpu-2 is prepared: so far"),
        (PLACED, (STARTING, STARTING), "starting: rank 1 on gpu-2 is starting: so far"),
        (PLACED, (STARTING, None), "starting: rank 1 on gpu-2 does not speak"),
        (WAS_READY, (UNREADY, READY), "unready: rank 0 on gpu-1 is unready: so far"),
        (WAS_READY, (READY, None), "ready: as far as known: gpu-2 does not speak"),
        (WAS_READY, (UNREADY, None), "unready: rank 1 on gpu-2 does not speak"),
        (evolve(WAS_READY, stopping="too many"), (READY, READY), "stopping: too many"),
    ],
)
def test_what_is_seen_of_the_shards_is_the_state(
    assignment: Assignment, phases: tuple[ShardPhase | None, ...], expected: str
) -> None:
    assert state(assignment, *phases) == expected


def test_without_a_place_it_is_pending_with_the_reason() -> None:
    assert state(None, unplaced="needs 8 free GPUs") == "pending: needs 8 free GPUs"


def test_in_back_off_it_has_failed_and_says_when_it_goes_on() -> None:
    failed: dict[str, Any] = {"failures": 2, "not_before": NOW + 37.0, "last_failure": FAILURE}
    assert state(None, **failed) == "failed: segmentation fault; again in 37 s"
    failed["not_before"] = NOW - 1
    assert state(None, unplaced="there are no nodes", **failed) == "failed: segmentation fault; there are no nodes"


def test_what_is_not_wanted_any_more_has_stopped() -> None:
    assert state(None, retired=True, failures=1, last_failure=FAILURE) == "stopped: "


NEW = evolve(PLACED, launch=evolve(LAUNCH, generation=2, places=(Place("gpu-3", "192.0.2.3", 18000),)))
MOVE = Move(MoveKind.DRAIN, "gpu-1 drains", NOW, replacement=NEW)
LEAVING = evolve(WAS_READY, stopping="replaced, since gpu-1 drains")
NEW_READY = evolve(MOVE, replacement=evolve(NEW, ready_at=NOW), steady_since=NOW)


@pytest.mark.parametrize(
    ("assignment", "move", "phase", "expected"),
    [
        (WAS_READY, MOVE, STARTING, "ready: moving: its replacement on gpu-3 starts, since gpu-1 drains"),
        (
            WAS_READY,
            NEW_READY,
            READY,
            "ready: moving: its replacement on gpu-3 is ready and must hold, since gpu-1 drains",
        ),
        (LEAVING, NEW_READY, READY, "ready: moved: its original on gpu-1 and gpu-2 stops"),
        (None, MOVE, STARTING, "starting: gpu-3 is starting"),
    ],
)
def test_a_replica_that_moves_says_so_and_is_as_whichever_serves(
    assignment: Assignment | None, move: Move, phase: ShardPhase, expected: str
) -> None:
    assert move.replacement is not None
    nodes = {
        place.node: seen_node(place.node, shards=(status_of(LAUNCH, rank, READY),))
        for rank, place in enumerate(LAUNCH.places)
    }
    nodes["gpu-3"] = seen_node("gpu-3", shards=(status_of(move.replacement.launch, 0, phase),))
    found = replica_state(ReplicaRecord("m/1", "m", 2, assignment, move), nodes, NOW)
    assert f"{found.state.value}: {found.reason}" == expected


def test_who_cannot_move_says_why() -> None:
    nodes = {
        place.node: seen_node(place.node, shards=(status_of(LAUNCH, rank, READY),))
        for rank, place in enumerate(LAUNCH.places)
    }
    found = replica_state(ReplicaRecord("m/1", "m", 1, WAS_READY), nodes, NOW, blocked="no room for its replacement")
    assert found == Standing(ReplicaState.READY, "should move: no room for its replacement", blocked=True)

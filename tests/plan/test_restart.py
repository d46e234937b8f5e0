"""How long is waited after failures, and what is forgotten when."""

import pytest
from attrs import evolve

from llmgw_core.model.catalog import Profile
from llmgw_core.model.deployment import Assignment, Move, MoveKind, ReplicaFailure, ReplicaRecord
from llmgw_core.model.launch import Launch, Offer, Place
from llmgw_core.plan.restart import MOST_S, delay_s, in_the_past, note_refusal

OFFER = Offer("key", "m", "/m", "p", Profile(engine="sim"))
A_LAUNCH = Launch("m/1", 1, OFFER, (Place("gpu-1", "192.0.2.1", 18000),))


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (10_000, 300)]
)
def test_the_wait_doubles_from_ten_seconds_to_five_minutes(failures: int, seconds: float) -> None:
    assert delay_s(failures, "crashed") == seconds


@pytest.mark.parametrize("kind", ["port in use", "node lost"])
@pytest.mark.parametrize(("failures", "seconds"), [(1, 0), (2, 0), (3, 10), (9, 10)])
def test_what_goes_elsewhere_in_any_case_waits_only_when_it_happens_again_and_again(
    kind: str, failures: int, seconds: float
) -> None:
    assert delay_s(failures, kind) == seconds


@pytest.mark.parametrize(("kind", "held"), [("bad arguments", True), ("bad configuration", False), ("crashed", False)])
def test_only_a_refused_command_is_held_against_a_node(kind: str, held: bool) -> None:
    record, failure = ReplicaRecord("m/1", "m"), ReplicaFailure(1.0, 1, "gpu-1", 0, kind, "why")
    marked = note_refusal(record, failure, OFFER, "digest")
    assert dict(marked.refused_by) == ({"gpu-1 key": "digest"} if held else {})


def test_after_the_clock_was_set_back_nobody_waits_for_the_old_time() -> None:
    """A machine that begins its day in the wrong year, and is put right after something had failed."""
    ahead = Assignment(A_LAUNCH, placed_at=9000.0, ready_at=9100.0)
    move = Move(MoveKind.DRAIN, "gpu-0 drains", 9000.0, replacement=ahead, steady_since=9100.0)
    found = in_the_past(ReplicaRecord("m/1", "m", assignment=ahead, move=move, not_before=9000.0), 1000.0)
    now = evolve(ahead, placed_at=1000.0, ready_at=1000.0)
    assert (found.not_before, found.assignment) == (1000.0 + MOST_S, now)
    assert found.move is not None
    assert (found.move.replacement, found.move.steady_since) == (now, 1000.0)
    assert in_the_past(found, 1001.0) is found

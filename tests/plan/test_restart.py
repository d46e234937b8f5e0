"""How long is waited after failures, and what is forgotten when."""

import pytest

from llmgw_core.model.catalog import Profile
from llmgw_core.model.deployment import ReplicaFailure, ReplicaRecord
from llmgw_core.model.launch import Offer
from llmgw_core.plan.restart import delay_s, note_refusal


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
    marked = note_refusal(record, failure, Offer("key", "m", "/m", "p", Profile(engine="sim")), "digest")
    assert dict(marked.refused_by) == ({"gpu-1 key": "digest"} if held else {})

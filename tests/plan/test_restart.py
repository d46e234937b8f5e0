"""How long is waited after failures, and what is forgotten when."""

import pytest

from llmgw_core.plan.restart import delay_s


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (10_000, 300)]
)
def test_the_wait_doubles_from_ten_seconds_to_five_minutes(failures: int, seconds: float) -> None:
    assert delay_s(failures, "crashed") == seconds


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0), (2, 0), (3, 10), (9, 10)])
def test_a_taken_port_is_waited_for_only_when_it_happens_again_and_again(failures: int, seconds: float) -> None:
    assert delay_s(failures, "port in use") == seconds

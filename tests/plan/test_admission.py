"""Who is let in under a name that somebody has, and what becomes of the one who had it."""

import attrs
import pytest

from llmgw_core.plan.admission import Admitted, Allowance, Caller, NotAdmitted, admit

HERE = Caller("gpu1", "key-a", "10.0.0.11:4000")
AGAIN = Caller("gpu1", "key-a", "10.0.0.11:4001")
OTHER = Caller("gpu1", "key-b", "10.0.0.12:4000")


@pytest.mark.parametrize(
    ("known_key", "connected", "silent", "replaces", "noted"),
    [
        (None, None, False, False, False),
        (None, None, True, False, False),
        ("key-a", None, False, False, False),
        ("key-a", AGAIN, False, True, False),
        ("key-a", AGAIN, True, True, False),
        ("key-b", None, True, False, True),
        ("key-b", None, False, False, True),
        ("key-b", OTHER, True, True, True),
        # The last visit's key is not the one that is connected: a write between the two failed.
        ("key-b", AGAIN, False, True, True),
    ],
)
def test_it_is_let_in(
    known_key: str | None, connected: Caller | None, silent: bool, replaces: bool, noted: bool
) -> None:
    decided = admit(HERE, known_key, connected, silent=silent)
    assert isinstance(decided, Admitted)
    assert decided.replaces is replaces
    assert bool(decided.note) is noted


def test_f12_a_second_machine_waits_while_the_first_is_heard_and_both_addresses_are_named() -> None:
    decided = admit(HERE, "key-b", OTHER, silent=False)
    assert decided == NotAdmitted(
        "node gpu1 refused: it is connected from 10.0.0.12:4000 with another key; two machines claim one name "
        "(10.0.0.12:4000 and 10.0.0.11:4000); stop one, or give it a name of its own"
    )


def test_a_second_agent_beside_the_first_waits_until_that_has_ended_or_is_silent() -> None:
    beside = attrs.evolve(AGAIN, instance="another process")
    assert admit(beside, "key-a", HERE, silent=False) == NotAdmitted(
        "node gpu1 refused: it is connected from 10.0.0.11:4000 by another agent with the same certificate, and is "
        "heard: a second one on that machine, or on a copy of it (10.0.0.11:4000 and 10.0.0.11:4001); stop one"
    )
    assert admit(beside, "key-a", HERE, silent=True) == Admitted(replaces=True)
    assert admit(beside, "key-a", None, silent=False) == Admitted(replaces=False)


def test_a_new_key_is_worth_a_note_that_says_from_where() -> None:
    decided = admit(HERE, "key-b", None, silent=False)
    assert decided == Admitted(False, "came from 10.0.0.11:4000 with a new key, as after onboarding again")


def test_an_allowance_gives_a_burst_and_then_one_a_second() -> None:
    allowance, now, done = Allowance(), 1000.0, 0
    for step in range(1000):
        if allowance.wait_s(now + step / 10) <= 0:
            allowance = allowance.taken(now + step / 10)
            done += 1
    assert 105 <= done <= 110


def test_a_clock_that_was_set_back_stops_nothing() -> None:
    allowance = Allowance(0.0, 5000.0)
    assert allowance.wait_s(5000.0) == 1.0
    assert allowance.wait_s(100.0) == 0.0

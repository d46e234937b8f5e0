"""Who is lost, and who is only silent with too many others."""

from math import inf

import pytest

from llmgw_core.plan.liveness import NodeState
from llmgw_core.plan.loss import Losses, find_losses
from llmgw_core.plan.world import ObservedNode

LOST, SUSPECT, ONLINE, WAITING = NodeState.LOST, NodeState.SUSPECT, NodeState.ONLINE, NodeState.WAITING


def fleet(size: int, *silent: tuple[NodeState, float]) -> dict[str, ObservedNode]:
    """The first ones with a state and when they were last heard, the others online."""
    given = [*silent, *[(ONLINE, 1000.0)] * (size - len(silent))]
    return {f"n{i:03}": ObservedNode(f"n{i:03}", state, last_heard=heard) for i, (state, heard) in enumerate(given)}


@pytest.mark.parametrize(
    ("size", "silent", "lost", "guarded"),
    [
        (4, [], 0, 0),
        (1, [(LOST, 0)], 1, 0),  # alone, at least two are needed
        (2, [(LOST, 0), (LOST, 60)], 0, 2),
        (2, [(LOST, 0), (LOST, 61)], 2, 0),  # one after the other
        (10, [(LOST, 0), (LOST, 1)], 2, 0),  # a fifth is not more than a fifth
        (9, [(LOST, 0), (LOST, 1)], 0, 2),
        (9, [(LOST, 0), (SUSPECT, 50)], 0, 1),  # the other is on its way
        (9, [(LOST, 0), (WAITING, 0)], 1, 0),  # who has not been back yet did not fall silent
        (10, [(LOST, 0), (LOST, 40), (LOST, 80)], 2 + 1, 0),  # no three within a minute
        (10, [(LOST, 0), (LOST, 40), (LOST, 60)], 0, 3),
        (10, [(LOST, 0), (LOST, 500), (LOST, 510), (LOST, 520)], 1, 3),
    ],
)
def test_a_loss_of_more_than_a_fifth_at_once_is_none(
    size: int, silent: list[tuple[NodeState, float]], lost: int, guarded: int
) -> None:
    losses = find_losses(fleet(size, *silent), 60.0)
    assert (len(losses.lost), len(losses.guarded)) == (lost, guarded)


def test_two_mass_losses_are_told_apart() -> None:
    losses = find_losses(fleet(9, (LOST, 0), (LOST, 1), (LOST, 500), (LOST, 501)), 60.0)
    assert losses.reasons == (
        "2 of 9 nodes fell silent together (n000, n001): none of them loses its replicas",
        "2 of 9 nodes fell silent together (n002, n003): none of them loses its replicas",
    )


def test_those_that_are_left_when_the_others_come_back_have_as_long_again() -> None:
    mass = find_losses(fleet(4, (LOST, 0), (LOST, 1)), 60.0, now=5000.0)
    assert mass.spared == {"n000": inf, "n001": inf}
    one = find_losses(fleet(4, (LOST, 0)), 60.0, now=9000.0, before=mass.spared)
    assert (one.lost, one.spared, one.reasons) == (frozenset(), {"n000": 9060.0}, ())
    still = find_losses(fleet(4, (LOST, 0)), 60.0, now=9059.0, before=one.spared)
    assert still.spared == {"n000": 9060.0}
    over = find_losses(fleet(4, (LOST, 0)), 60.0, now=9060.0, before=still.spared)
    assert (over.lost, over.spared) == (frozenset({"n000"}), {})
    assert find_losses(fleet(4, (LOST, 0)), 60.0, now=9061.0, before=over.spared).lost == {"n000"}


def test_a_mass_that_is_only_suspect_is_not_told_of() -> None:
    assert find_losses(fleet(4, (SUSPECT, 0), (SUSPECT, 1), (SUSPECT, 2)), 60.0) == Losses()


def test_a_long_chain_of_silences_is_one_mass() -> None:
    losses = find_losses(fleet(10, *[(LOST, 20.0 * n) for n in range(9)]), 60.0)
    assert losses.reasons == (
        "9 of 10 nodes fell silent together (n000, n001, n002, …): none of them loses its replicas",
    )

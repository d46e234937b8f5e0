"""Who belongs to a shard, by tables of processes."""

from __future__ import annotations

import pytest

from llmgw_core.plan.shard_tree import Kinship, Process, ProcessId, branch, members

MARK = "m/1#0@1"


def table(*rows: tuple[int, int, int, int, str]) -> dict[int, Process]:
    """Rows: pid, start, parent, session, marker."""
    return {
        pid: Process(pid, start, parent, session, "S", f"p{pid}", marker)
        for pid, start, parent, session, marker in rows
    }


REAPER, ENGINE = ProcessId(10, 100), ProcessId(11, 110)
KIN = Kinship(MARK, REAPER, {"engine": ENGINE})
AGENT_AND_OTHERS = ((1, 1, 0, 1, ""), (5, 5, 1, 5, ""), (20, 50, 1, 20, "m/2#0@1"), (21, 60, 20, 21, "m/2#0@1"))
OURS = ((10, 100, 1, 10, MARK), (11, 110, 10, 11, MARK), (12, 120, 11, 11, MARK))


@pytest.mark.parametrize(
    ("more", "pids"),
    [
        ((), [11, 12]),
        (((13, 130, 12, 13, ""),), [11, 12, 13]),  # a session of its own, and no marker (E01, E02)
        (((13, 130, 10, 13, ""),), [11, 12, 13]),  # an orphan is the reaper's child
        (((13, 130, 1, 11, ""),), [11, 12, 13]),  # in the engine's session, whoever its parent is
        (((13, 130, 1, 13, MARK),), [11, 12, 13]),  # by its marker alone
        (((13, 130, 1, 13, "m/1#0@2"),), [11, 12]),  # another generation
        (((13, 130, 1, 13, "m/1#0@11"),), [11, 12]),
        (((13, 130, 21, 13, ""),), [11, 12]),  # another shard's (E04)
        (((13, 90, 1, 11, ""),), [11, 12]),  # in that session before the engine began: not its
    ],
)
def test_members(more: tuple[tuple[int, int, int, int, str], ...], pids: list[int]) -> None:
    assert [each.pid for each in members(table(*AGENT_AND_OTHERS, *OURS, *more), KIN)] == pids


def test_with_the_reaper_killed_its_tree_is_still_found() -> None:
    left = table(*AGENT_AND_OTHERS, (11, 110, 1, 11, ""), (12, 120, 11, 12, ""), (13, 130, 1, 11, ""))
    assert [each.pid for each in members(left, KIN)] == [11, 12, 13]


def test_one_that_lost_everything_is_known_because_it_was_seen() -> None:
    left = table(*AGENT_AND_OTHERS, (14, 140, 1, 14, ""))
    assert members(left, KIN) == ()
    seen = Kinship(MARK, REAPER, {"engine": ENGINE}, frozenset({ProcessId(14, 140)}))
    assert [each.pid for each in members(left, seen)] == [14]


def test_a_pid_that_was_given_to_somebody_else_is_nobody_of_ours() -> None:
    reused = table(*AGENT_AND_OTHERS, (10, 900, 1, 10, ""), (11, 910, 1, 11, ""), (12, 920, 11, 11, ""))
    assert members(reused, KIN) == ()


def test_the_dead_are_no_members() -> None:
    zombie = Process(11, 110, 10, 11, "Z", "p11", MARK)
    assert members({**table(*OURS), 11: zombie}, KIN) == (table(*OURS)[12],)


def test_a_branch_is_a_process_its_session_and_what_descends() -> None:
    both = table(*OURS, (30, 300, 10, 30, MARK), (31, 310, 30, 31, ""), (32, 320, 10, 30, ""))
    assert branch(both, ProcessId(30, 300)) == {30, 31, 32}
    assert branch(both, ProcessId(30, 1)) == frozenset()

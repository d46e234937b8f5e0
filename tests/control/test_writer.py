"""The writer's one thread: groups, one bad change among good ones, its end."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio
from attrs import define, field

from llmgw_core.control.writer import Writer, open_writer
from llmgw_core.store.change import Change, EventHappened
from llmgw_core.store.database import Database, StoreFailed
from llmgw_core.store.reading import read_events

DEADLINE_S = 60.0


@define
class Counted:
    """A database that keeps each group that it was given."""

    inner: Database
    groups: list[int] = field(factory=list)
    fails: type[Exception] | None = None

    def commit(self, changes: Sequence[Change]) -> None:
        if self.fails is not None:
            raise self.fails("made to fail")
        self.inner.commit(changes)
        self.groups.append(len(changes))


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Iterator[Counted]:
    database = Database(tmp_path / "store.db")
    yield Counted(database)
    database.close()


def event(reason: str) -> EventHappened:
    return EventHappened("k", "gpu1", reason, 1.0)


def stored(database: Counted) -> list[str]:
    return [each.reason for each in read_events(database.inner, limit=5000)]


async def write_all(writer: Writer, groups: Sequence[Sequence[Change]]) -> list[str]:
    """What became of each, in order."""
    found = [""] * len(groups)

    async def write(index: int) -> None:
        try:
            await writer.write(*groups[index])
        except StoreFailed:
            found[index] = "failed"
        else:
            found[index] = "stored"

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            for index in range(len(groups)):
                nursery.start_soon(write, index)
    return found


async def test_a_write_returns_when_it_is_stored(database: Counted) -> None:
    async with open_writer(database) as writer:  # type: ignore[arg-type]
        with trio.fail_after(DEADLINE_S):
            await writer.write(event("a"), event("b"))
        assert stored(database) == ["a", "b"]


async def test_changes_that_come_together_are_few_transactions(database: Counted) -> None:
    async with open_writer(database) as writer:  # type: ignore[arg-type]
        assert await write_all(writer, [[event(str(number))] for number in range(500)]) == ["stored"] * 500
    assert sorted(stored(database), key=int) == [str(number) for number in range(500)]
    assert len(database.groups) < 50


async def test_one_bad_change_takes_none_of_the_others_with_it(database: Counted) -> None:
    groups = [[event(str(number))] for number in range(20)]
    groups[7] = [event("half"), event("\ud800")]
    async with open_writer(database) as writer:  # type: ignore[arg-type]
        found = await write_all(writer, groups)
        assert found == ["failed" if number == 7 else "stored" for number in range(20)]
        assert await write_all(writer, [[event("20")]]) == ["stored"]
    assert sorted(map(int, stored(database))) == [number for number in range(21) if number != 7]


async def test_a_mistake_of_ours_reaches_who_asked_and_the_thread_lives(database: Counted) -> None:
    async with open_writer(database) as writer:  # type: ignore[arg-type]
        database.fails = ZeroDivisionError
        with trio.fail_after(DEADLINE_S), pytest.raises(ZeroDivisionError):
            await writer.write(event("a"))
        database.fails = None
        with trio.fail_after(DEADLINE_S):
            await writer.write(event("b"))
    assert stored(database) == ["b"]


async def test_what_was_asked_for_before_the_end_is_written(database: Counted) -> None:
    with trio.fail_after(DEADLINE_S):
        async with open_writer(database) as writer, trio.open_nursery() as nursery:  # type: ignore[arg-type]
            for number in range(50):
                nursery.start_soon(writer.write, event(str(number)))
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    # Cancelled is who waited, not what was asked for.
    assert sorted(map(int, stored(database))) == list(range(50))


async def test_a_write_after_the_end_is_refused_and_not_waited_for(database: Counted) -> None:
    async with open_writer(database) as writer:  # type: ignore[arg-type]
        pass
    with trio.fail_after(DEADLINE_S), pytest.raises(StoreFailed, match="the control plane is stopping"):
        await writer.write(event("late"))

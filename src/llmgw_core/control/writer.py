"""One thread that writes the store, many tasks that wait for it: changes that come together are one transaction.

A task that asked for a write goes on when its change is on the disk, or gets the error. A group that fails is tried
again change by change, so that one change's error is its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from queue import SimpleQueue
from threading import Thread

import trio
from attrs import define, field

from llmgw_core.store.change import Change
from llmgw_core.store.database import Database, StoreFailed

GROUP_LIMIT = 1000
TASKS_A_TURN = 16
"""How many tasks go on in one turn of the loop: a group of a thousand is on the disk at once."""


@define
class _Request:
    changes: Sequence[Change]
    done: trio.Event = field(factory=trio.Event)
    error: Exception | None = None


@define
class Writer:
    """`write` from any task of the trio run that it was opened in."""

    _database: Database
    _queue: SimpleQueue[_Request | None] = field(factory=SimpleQueue)
    _closed: bool = False

    async def write(self, *changes: Change) -> None:
        """Return when all of `changes` are on the disk, in one transaction; raises `StoreFailed` and nothing is."""
        if self._closed:
            raise StoreFailed("nothing is stored any more: the control plane is stopping")
        request = _Request(changes)
        self._queue.put(request)
        await request.done.wait()
        if request.error:
            raise request.error

    def work(self, token: trio.lowlevel.TrioToken) -> None:
        """The thread's work, until `close`."""
        while (request := self._queue.get()) is not None:
            group = [request, *self._waiting()]
            try:
                self._commit(group)
            except Exception as error:
                # Ours. The thread must live, and nobody may wait for ever.
                for each in group:
                    each.error = each.error or error
            token.run_sync_soon(_release, token, deque(group))

    def _waiting(self) -> list[_Request]:
        found: list[_Request] = []
        while len(found) < GROUP_LIMIT and not self._queue.empty():
            request = self._queue.get()
            if request is None:
                self._queue.put(None)
                break
            found.append(request)
        return found

    def _commit(self, group: Sequence[_Request]) -> None:
        try:
            self._database.commit([change for request in group for change in request.changes])
        except StoreFailed as error:
            if len(group) == 1:
                group[0].error = error
                return
            for request in group:
                self._commit([request])

    def close(self) -> None:
        """Let the thread end when all that was asked for is written."""
        self._closed = True
        self._queue.put(None)


def _release(token: trio.lowlevel.TrioToken, written: deque[_Request]) -> None:
    """Let some tasks go on, and the others in the next turns of the loop."""
    for _ in range(min(TASKS_A_TURN, len(written))):
        written.popleft().done.set()
    if written:
        token.run_sync_soon(_release, token, written)


@asynccontextmanager
async def open_writer(database: Database) -> AsyncIterator[Writer]:
    """A writer whose thread ends with the block, after the last write."""
    writer = Writer(database)
    thread = Thread(target=writer.work, args=(trio.lowlevel.current_trio_token(),), name="store")
    thread.start()
    try:
        yield writer
    finally:
        writer.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(thread.join)

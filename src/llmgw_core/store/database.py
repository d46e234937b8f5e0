"""The SQLite file: opened, migrated, written in groups, read, copied.

Rules: one connection writes (WAL, synchronous=FULL), so what `commit` returned from is on the disk; a group is one
transaction, all of it or nothing; a full disk raises `StoreFull`, changes nothing, and the next commit may work again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path

import attrs

from llmgw_core.errors import LlmgwError
from llmgw_core.store.change import Change
from llmgw_core.store.statement import STATEMENTS

_FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
"""The latter: there is no room for the memory that its processes share, which even a reader needs."""
_REFUSALS = (sqlite3.Error, OverflowError, ValueError)
"""The latter two: a number over 64 bits, and a text that is no Unicode."""
CACHE_KIB = 256
"""Of each connection: little is read back (measured: as many writes as with SQLite's 2 MiB)."""
_FIELDS = {kind: tuple(each.name for each in attrs.fields(kind)) for kind in STATEMENTS}
BUSY_S = 5.0
"""How long a write waits for somebody else's (a backup tool's) lock."""


class StoreFailed(LlmgwError):
    """The store could not be opened, read or written."""


class StoreFull(StoreFailed):
    """There is no room on the disk under the store."""


class Database:
    """The control plane's memory. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _make_private(path)
        try:
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _failed(f"cannot open {path}", error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self.close()
            raise _failed(f"cannot open {path}", error) from error
        except StoreFailed:
            self.close()
            raise

    def _prepare(self) -> None:
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        _migrate(self._connection)

    def close(self) -> None:
        self._connection.close()

    def commit(self, changes: Sequence[Change]) -> None:
        """Write all of `changes`, or none of them; raises `StoreFull` or `StoreFailed`."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for change in changes:
                _write(self._connection, change)
            self._connection.execute("COMMIT")
        except _REFUSALS as error:
            self._roll_back()
            raise _failed(f"cannot write {self.path}", error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def read(self, question: str, *arguments: object) -> list[sqlite3.Row]:
        """The rows of one SELECT."""
        try:
            return self._connection.execute(question, arguments).fetchall()
        except _REFUSALS as error:
            raise _failed(f"cannot read {self.path}", error) from error

    def back_up(self, target: Path) -> None:
        """Copy the whole store, consistent, to a file that must not be there."""
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise StoreFailed(f"{target} is there already; name a file that is not") from None
        except (OSError, ValueError) as error:
            raise StoreFailed(f"cannot back up to {target}: {getattr(error, 'strerror', None) or error}") from error
        try:
            with closing(sqlite3.connect(target)) as copy:
                self._connection.backup(copy)
        except sqlite3.Error as error:
            target.unlink(missing_ok=True)
            raise _failed(f"cannot back up to {target}", error) from error


def _make_private(path: Path) -> None:
    """Keys of engines stand in it. Its companions get its mode from SQLite, which also says what is wrong with it.

    A store that is there is not opened: to close any descriptor of it would end all locks that this process has on it
    (fcntl(2)), and whoever looked into it from outside would, as the last one, take its log away under the writer.
    """
    with suppress(OSError, ValueError):
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if path.stat().st_mode & 0o077:  # as earlier releases made it
            path.chmod(0o600)


def _failed(what: str, error: Exception) -> StoreFailed:
    if getattr(error, "sqlite_errorname", "") in _FULL:
        return StoreFull(f"{what}: the disk is full; nothing of this is stored, make room and it works again")
    return StoreFailed(f"{what}: {error}")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to this release's number, step by step, each in one transaction."""
    steps = sorted(each.name for each in files("llmgw_core.store.migrations").iterdir() if each.name.endswith(".sql"))
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise StoreFailed(f"the store has schema {version}, this release knows up to {len(steps)}; install a newer one")
    for number, name in enumerate(steps[version:], version + 1):
        script = files("llmgw_core.store.migrations").joinpath(name).read_text(encoding="utf-8")
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


def _write(connection: sqlite3.Connection, change: Change) -> None:
    values = {name: getattr(change, name) for name in _FIELDS[type(change)]}
    for statement in STATEMENTS[type(change)]:
        connection.execute(statement, values)

"""The access log: one JSON object a line for each request.

Rules: lines are gathered and written a few times a second, by a thread; a file that was moved away (logrotate) is
opened anew; what cannot be written is lost and counted, and no request waits for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import trio

FLUSH_EVERY_S = 0.25
MOST_WAITING_BYTES = 8 * 1024 * 1024
_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, omit_defaults=True):
    """What is said of a request; times in seconds, `at` since 1970."""

    at: float
    id: str
    client: str
    method: str
    path: str
    status: int
    total_s: float
    key: str = ""
    model: str = ""
    replica: str = ""
    first_s: float = 0.0
    bytes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    retries: int = 0
    cause: str = ""


class AccessLog:
    """`path` None: standard output."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.lost_lines = 0
        self._file: int | None = None
        self._is_torn = False
        """Whether the last line was written in part, as the disk was full."""
        self._open()

    def add(self, entry: Entry) -> None:
        line = _encode(entry)
        if self._waiting_bytes > MOST_WAITING_BYTES:
            self.lost_lines += 1
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    async def write_for_ever(self) -> None:
        try:
            while True:
                await trio.sleep(FLUSH_EVERY_S)
                lines = self._take()
                if lines:
                    self.lost_lines += await trio.to_thread.run_sync(self._write, lines)
        finally:
            self._write(self._take())

    def _take(self) -> list[bytes]:
        lines, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        return lines

    def _write(self, lines: list[bytes]) -> int:
        """How many lines were lost."""
        if not lines:
            return 0
        try:
            self._reopen_if_moved()
            data = memoryview(b"\n".join([b"", *lines, b""] if self._is_torn else [*lines, b""]))
            while data:
                written = os.write(self._file if self._file is not None else sys.stdout.fileno(), data)
                data = data[written:]
                self._is_torn = len(data) > 0
        except OSError:
            return len(lines)
        return 0

    def _open(self) -> None:
        if self._path is not None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _reopen_if_moved(self) -> None:
        if self._path is None or self._file is None:
            return
        ours = os.fstat(self._file)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            old = self._file
            self._open()
            os.close(old)

"""The access log: one JSON object a line for each request.

Rules: lines are gathered and written a few times a second, by a thread; a file that was moved away (logrotate) is
opened anew; what cannot be written is lost and counted, and neither a request nor the end of the process waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from pathlib import Path

import msgspec
import trio

FLUSH_EVERY_S = 0.25
LAST_S = 1.0
"""So long the last lines may take; nobody reads a pipe, say."""
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
    first_s: float | None = None
    bytes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    retries: int = 0
    cause: str = ""


class AccessLog:
    """`path` None: standard output."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._waiting: deque[bytes] = deque()
        """Taken by the thread that writes it: what is cancelled before there is one leaves it where it is."""
        self._waiting_bytes = 0
        self.lost_lines = 0
        self._file: int | None = None
        self._is_torn = False
        """Whether the last line was written in part, as the disk was full."""
        self._writing = threading.Lock()
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
                if self._waiting:
                    await self._flush()
        finally:
            with trio.move_on_after(LAST_S, shield=True):
                await self._flush()

    async def _flush(self) -> None:
        self._waiting_bytes = 0
        self.lost_lines += await trio.to_thread.run_sync(self._write, abandon_on_cancel=True)

    def _write(self) -> int:
        """How many lines were lost."""
        with self._writing:
            lines = self._take()
            return self._write_alone(lines) if lines else 0

    def _take(self) -> list[bytes]:
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _write_alone(self, lines: list[bytes]) -> int:
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
            # Whoever opens a pipe would wait for its reader, before a first word.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(self._path, flags, 0o640)
            os.set_blocking(self._file, True)

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

"""A file of weights, opened with care, and the words for what is wrong with one.

In: a path.  Out: a `WeightFile`; raises `Unusable`. Synchronous.
Rules: what is no regular file (a FIFO, a device, a directory) is refused before it is opened; no more than the
beginning of a file is ever read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, frozen

# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: a pointer is a text that begins with this.
_LFS = b"version https://git-lfs.github.com/spec/v1"
_CHUNK_BYTES = 1024 * 1024


class Unusable(Exception):
    """Why weights cannot be used, in a line that goes on after a name: `is missing`.

    `member` is the file that it is about, where that is not the source itself.
    """

    def __init__(self, reason: str, member: str = "") -> None:
        super().__init__(reason)
        self.member = member


class NotJudged(Exception):
    """To know more would take more reading than it is worth; nothing is known to be wrong."""


def shown(name: str) -> str:
    """A file's name, fit to stand in one line."""
    return name if name.isprintable() else ascii(name)


def cut_short(have: int, wanted: int) -> str:
    mega = 1_000_000
    if have // mega == wanted // mega:
        return f"is cut short: {have:,} of {wanted:,} bytes"
    return f"is cut short: {have // mega:,} of {wanted // mega:,} MB"


@frozen
class WeightFile:
    """An open file and its size."""

    size: int
    _descriptor: int

    def read(self, at: int, count: int) -> bytes:
        """So many bytes, or fewer at the file's end."""
        parts = []
        while count > 0 and (part := os.pread(self._descriptor, min(count, _CHUNK_BYTES), at)):
            parts.append(part)
            at, count = at + len(part), count - len(part)
        return b"".join(parts)


@define
class Beginning:
    """A file's first bytes, taken or skipped one after the other; what is skipped is mostly not read."""

    _file: WeightFile
    _limit: int
    at: int = 0
    _window: bytes = b""
    _window_at: int = 0

    def take(self, count: int) -> bytes:
        """The next bytes; raises `NotJudged`, and `Unusable` where the file ends before."""
        begin = self._hold(count)
        self.at += count
        return self._window[begin : begin + count]

    def skip(self, count: int) -> None:
        self._check(count)
        self.at += count

    def skip_strings(self, count: int) -> None:
        """So many times a 64-bit length and bytes: a vocabulary has hundreds of thousands, so this is one loop."""
        for _ in range(count):
            begin = self._hold(8)
            length = int.from_bytes(self._window[begin : begin + 8], "little")
            self._check(8 + length)
            self.at += 8 + length

    def _hold(self, count: int) -> int:
        """Where in the window the next bytes begin."""
        begin = self.at - self._window_at
        if begin + count > len(self._window):
            self._check(count)
            self._window, self._window_at, begin = self._file.read(self.at, max(count, _CHUNK_BYTES)), self.at, 0
            if len(self._window) < count:  # it has been cut since its size was taken
                raise Unusable(f"is cut short: it ends at byte {self.at + len(self._window):,}")
        return begin

    def _check(self, count: int) -> None:
        if self.at + count > self._file.size:
            raise Unusable(f"is cut short: {self._file.size:,} bytes, and its description of the tensors goes on")
        if self.at + count > self._limit:
            raise NotJudged


@contextmanager
def opened(path: Path) -> Iterator[WeightFile]:
    """The regular file at `path`, all links followed; raises `Unusable`, each reason without the name."""
    try:
        _refuse_irregular(os.stat(path))
        # Should it have become a FIFO since, opening does not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unusable(why_not(path, error)) from error
    try:
        info = os.fstat(descriptor)
        _refuse_irregular(info)
        file = WeightFile(info.st_size, descriptor)
        _refuse_stand_ins(path, file)
        yield file
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _refuse_irregular(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise Unusable("is a directory, not a file" if stat.S_ISDIR(info.st_mode) else "is not a regular file")


def _refuse_stand_ins(path: Path, file: WeightFile) -> None:
    if file.size == 0:
        raise Unusable("is empty")
    if file.read(0, len(_LFS)) == _LFS:
        raise Unusable("is a git-LFS pointer, not the file: run git lfs pull")
    # aria2 reserves the whole file first, so that its size says nothing while its control file is there.
    if os.path.lexists(f"{path}.aria2"):
        raise Unusable("is not downloaded to its end: an .aria2 file is beside it")


def why_not(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is a link to nothing" if os.path.islink(path) else "is missing"
    return f"cannot be read: {error.strerror}"

"""One run at a time for one machine, and for one node's name, on the authority's host.

Rules: two that write to one machine side by side would leave the key of one and the certificate of the other; whole
fleets are onboarded side by side, so each name is locked by itself; a run that was killed holds nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from llmgw_core.errors import LlmgwError

FILE = ".onboarding"
_BUSY = (BlockingIOError, PermissionError)


@contextmanager
def taken(directory: Path, *names: str) -> Iterator[None]:
    """Raises where another run has one of the names. Each is one byte of one file, as fcntl(2) locks them."""
    try:
        descriptor = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # where nothing can be written, nothing can be issued either, and that is told
        yield
        return
    try:
        for name in names:
            _lock(descriptor, name)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, name: str) -> None:
    place = crc32(name.encode("utf-8", "surrogateescape"))
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except _BUSY as error:
        raise LlmgwError(f"another run of llmgw-onboard-node is at {name}: wait for it, or end it") from error

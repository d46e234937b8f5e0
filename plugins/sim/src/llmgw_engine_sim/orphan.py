"""A child that outlives its parent, as an engine's worker process does that still holds a GPU's memory.

It is in a session of its own, ignores SIGTERM, keeps a file locked and its pid in it, and ends by itself after a
quarter of an hour, so that nothing is left of a test for long.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

_LIFE_S = 900
_CHILD = f"""
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", flush=True)
time.sleep({_LIFE_S})
"""


class Held(Exception):
    """An earlier child still has the file."""


def leave_orphan(path: str) -> int:
    """The child's pid, once it holds `path` and heeds no SIGTERM; raises `Held`, and OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(descriptor, path)
        # The lock is of the open file, which the child inherits: it is held as long as the child lives.
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", _CHILD], pass_fds=(descriptor,), stdout=subprocess.PIPE, start_new_session=True
        )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{child.pid}\n".encode(), 0)
    finally:
        os.close(descriptor)
    if child.stdout is None or not child.stdout.readline():
        raise OSError("the child did not start")
    return child.pid


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        raise Held(f"{path} is held by process {pid}") from None

"""What every process of llmgw needs of its machine: its state directory for itself, and descriptors enough."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmgw_core.errors import LlmgwError


class InUse(LlmgwError):
    """Another process has this state directory."""


@contextmanager
def sole_owner(state: Path, what: str) -> Iterator[None]:
    """Hold the state directory while the block runs; raises `InUse`. `what`: of which kind there may be one."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LlmgwError(f"cannot use the state directory {state}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise InUse(f"{state} is in use by another {what} (pid {holder}); stop it first") from None
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # a full disk keeps nobody from starting
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def allow_many_connections() -> None:
    """A shell gives 1,024 descriptors, and whoever serves many needs more: as many as we may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

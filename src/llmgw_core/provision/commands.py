"""Runs Proxmox's commands, one at a time, and ends with care what a signal interrupts.

Rules: a list of words, never a shell; a command is in a session of its own, so that Ctrl-C reaches this program only,
which then ends the command and says what becomes of its work; everything has a deadline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.provision.words import explain_failure

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S = 0.2
END_S = 30.0
"""How long a command may take to end itself: Proxmox's remove what they were making."""


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP; no `Exception`, so that nobody takes it for a failure of what was running."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class CommandFailed(LlmgwError):
    """A command ended with another code than 0, or not in time."""

    def __init__(self, argv: Sequence[str], ended: Ended) -> None:
        self.ended = ended
        super().__init__(explain_failure(argv, ended.code, ended.output))


@frozen
class Ended:
    code: int | None
    """`None`: it was not over in time, and was ended."""
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return f"{self.stdout}\n{self.stderr}"


@contextmanager
def signals_raise() -> Iterator[None]:
    """Within, the first signal raises `Interrupted`, and those after it change nothing."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def interrupt(number: int, _: FrameType | None) -> None:
        ignore_signals()
        raise Interrupted(number)

    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def run(argv: Sequence[str], timeout_s: float, stdin: IO[bytes] | None = None, said: str | None = None) -> Ended:
    """The command's end; raises only when it cannot be started. `said`: what it reads, in place of `stdin`."""
    held: list[int] = []  # of one that is interrupted while it starts, nobody would know
    handlers = {number: signal.signal(number, lambda each, _: held.append(each)) for number in SIGNALS}
    try:
        process = _start(argv, stdin, said)
    except BaseException:
        _let_go(handlers, held)
        raise
    try:
        _let_go(handlers, held)
        stdout, stderr = process.communicate(said, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Ended(None, *_end(process))
    except BaseException:
        _end(process)
        raise
    return Ended(process.returncode, stdout, stderr)


def _let_go(handlers: Mapping[signal.Signals, Any], held: Sequence[int]) -> None:
    """The handlers of before, and the first signal that they have not seen."""
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for first in held[:1]:
        signal.raise_signal(first)


def _start(argv: Sequence[str], stdin: IO[bytes] | None, said: str | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if said is not None else stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Output is read by patterns; and perl warns of locales that are not there, in many lines.
        env={**os.environ, "LC_ALL": "C"},
        encoding="utf-8",
        errors="replace",
    )


def run_or_raise(argv: Sequence[str], timeout_s: float) -> Ended:
    """Raises `CommandFailed`."""
    try:
        ended = run(argv, timeout_s)
    except OSError as error:
        raise LlmgwError(f"cannot run {argv[0]}: {error.strerror}") from error
    if ended.code != 0:
        raise CommandFailed(argv, ended)
    return ended


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + END_S
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=_LOOK_S)
        if process.poll() is not None:
            break
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_LOOK_S)
    return "", ""  # another process has its output still, as ssh's master has that of a session

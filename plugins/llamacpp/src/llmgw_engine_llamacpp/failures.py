"""Why a llama.cpp process ended.

In: an `Exit`.  Out: a `Failure`, or `None` when it had been asked to stop.  Pure and total.
Rules: an exit on request is never a failure, whatever its code (0, 1 and -15 are usual, and a head that loses its
workers first aborts); any other exit is one, a worker's with code 0 too. The reason is the line that tells most, never
simply the first: warnings come before it and the server's farewell after it.
"""

from __future__ import annotations

import re
import signal

from llmgw_core.engine import Exit, Failure, FailureKind

# b10434 puts `0.00.006.018 E srv         start: ` before its messages.
_PREFIX = re.compile(r"^(?:\d+\.\d+\.\d+\.\d+ )?(?:[A-Z] )?(?:(?:srv|cmn|main) +)?")

# The last two are an older build's (2024-06) and a fork's (ik_llama.cpp), then a Python wrapper's.
_ARGUMENT = re.compile(
    r"error while handling (?:argument|environment variable)|error: invalid argument|error: unknown argument"
    r"|legacy .*option .* is disabled|error: unrecognized arguments"
)

_SIGNS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    (FailureKind.BAD_ARGUMENTS, _ARGUMENT),
    # `Failed to create server socket` is the RPC worker's, b10434.
    (FailureKind.PORT_IN_USE, re.compile(r"couldn't bind|Failed to create server socket", re.IGNORECASE)),
    (FailureKind.BAD_CONFIGURATION, re.compile(r"RPC server version mismatch|error while loading shared libraries")),
    (
        FailureKind.PEER_LOST,
        re.compile(r"Remote RPC server crashed|Failed to connect to \S+:\d+|RPC HELLO failed", re.IGNORECASE),
    ),
    (FailureKind.OUT_OF_MEMORY, re.compile(r"out of memory|OutOf(?:Device|Host)Memory")),
    (FailureKind.OUT_OF_MEMORY, re.compile(r"unable to allocate .* buffer")),
    (FailureKind.WEIGHTS, re.compile(r"gguf_init_from\w+: (?:invalid|failed)")),
    (FailureKind.WEIGHTS, re.compile(r"error loading model|failed to load model", re.IGNORECASE)),
)


def explain_exit(exit: Exit) -> Failure | None:
    if exit.asked:
        return None
    lines = [line.strip() for line in exit.log_tail.splitlines() if line.strip()]
    for kind, sign in _SIGNS:
        found = next((line for line in reversed(lines) if sign.search(line)), None)
        if found:
            return Failure(kind, _PREFIX.sub("", found))
    return _unexplained(exit, lines)


def argument_errors(log: str) -> tuple[str, ...]:
    """The lines in which llama-server refuses an argument."""
    return tuple(_PREFIX.sub("", line.strip()) for line in log.splitlines() if _ARGUMENT.search(line))


def _unexplained(exit: Exit, lines: list[str]) -> Failure:
    what = "the server" if exit.node_rank == 0 else "the RPC worker"
    last = f"; its last line: {_PREFIX.sub('', lines[-1])}" if lines else ""
    kind = FailureKind.KILLED if exit.signal in (signal.SIGKILL, signal.SIGTERM) else FailureKind.CRASHED
    return Failure(kind, f"{what} ended by itself with {exit}{last}")

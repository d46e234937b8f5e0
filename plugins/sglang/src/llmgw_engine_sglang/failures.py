"""Why an SGLang process ended.

In: an `Exit`.  Out: a `Failure`, or `None` when it had been asked to stop.  Pure and total.
Rules: an exit on request is never a failure, whatever its code (workers are killed as a matter of course); any other
exit is one. A process whose child failed sends SIGKILL to itself (0.5.23), so that the log tells more than the signal.
"""

from __future__ import annotations

import re

from llmgw_core.engine import Exit, Failure, FailureKind
from llmgw_core.help.last_words import Sign, find_cause, last_error, log_lines, parser_error

# A cause comes before its consequences: a peer that is lost may have run out of memory.
_SIGNS: tuple[Sign, ...] = (
    (FailureKind.PORT_IN_USE, re.compile(r"[Aa]ddress already in use|\[Errno 98\]|EADDRINUSE")),
    (
        FailureKind.OUT_OF_MEMORY,
        re.compile(
            r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|OutOfMemoryError|MemoryError\b"
            r"|Not enough memory\b"
        ),
    ),
    (FailureKind.WEIGHTS, re.compile(r"HFValidationError|RepositoryNotFoundError|LocalEntryNotFoundError")),
    (FailureKind.WEIGHTS, re.compile(r"Cannot find any model weights|SafetensorError|is not a valid model identifier")),
    (FailureKind.WEIGHTS, re.compile(r"FileNotFoundError.*(?:safetensors|\.bin|\.pt|config\.json)")),
    # 0.5.3 and 0.5.4 list deprecated switches and raise this when one is used.
    (FailureKind.BAD_ARGUMENTS, re.compile(r"ValueError: .*--[\w-]+ is deprecated")),
    (FailureKind.BAD_CONFIGURATION, re.compile(r"architectures .* (?:not|are) supported")),
    (
        FailureKind.PEER_LOST,
        re.compile(
            r"DistStoreError|DistNetworkError|Connection (?:closed|reset) by (?:remote )?peer|ncclRemoteError"
            r"|Watchdog caught collective operation timeout|Watchdog timeout \("
        ),
    ),
)
# The function that refuses impossible settings is named in the traceback, its reason in the last line.
_CHECKED = re.compile(r", in check_server_args$", re.MULTILINE)
# Lines that only point to a cause further up. The misspelling is SGLang's.
_FAREWELLS = re.compile(r"Received sigquit from a child proces|It usually means the child failed")


def explain_exit(exit: Exit) -> Failure | None:
    if exit.asked:
        return None
    lines = log_lines(exit.log_tail)
    refused = parser_error(lines) if exit.code == 2 else None
    if refused:
        return Failure(FailureKind.BAD_ARGUMENTS, refused)
    cause = find_cause(lines, _SIGNS)
    if cause:
        return Failure(*cause)
    if _CHECKED.search(exit.log_tail):
        return Failure(FailureKind.BAD_CONFIGURATION, last_error(lines, _FAREWELLS) or str(exit))
    return _unexplained(exit, lines)


def _unexplained(exit: Exit, lines: list[str]) -> Failure:
    said = last_error(lines, _FAREWELLS)
    last = f"; it said last: {said}" if said else "; it said nothing"
    if any(map(_FAREWELLS.search, lines)):
        return Failure(FailureKind.CRASHED, f"one of its processes failed, and it ended with {exit}{last}")
    if exit.code == 0:
        return Failure(FailureKind.CRASHED, f"ended with exit code 0 and nobody asked it to{last}")
    killed = exit.signal is not None or exit.code == 137
    return Failure(FailureKind.KILLED if killed else FailureKind.CRASHED, f"ended with {exit}{last}")

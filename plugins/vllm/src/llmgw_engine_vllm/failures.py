"""Why a vLLM process ended.

In: an `Exit`.  Out: a `Failure`, or `None` when it had been asked to stop.  Pure and total.
Rules: an exit on request is never a failure, whatever its code; any other exit is one, with code 0 too, since every
death of an engine core, a worker or a peer ended so (0.32.0, run).
"""

from __future__ import annotations

import re

from llmgw_core.engine import Exit, Failure, FailureKind
from llmgw_core.help.last_words import Sign, find_cause, last_error, log_lines, parser_error

# A cause comes before its consequences: a peer that is lost may have run out of memory.
_SIGNS: tuple[Sign, ...] = (
    (FailureKind.PORT_IN_USE, re.compile(r"Address already in use|\[Errno 98\]|EADDRINUSE")),
    (
        FailureKind.OUT_OF_MEMORY,
        re.compile(
            r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|OutOfMemoryError|MemoryError\b"
            r"|No available memory for the cache blocks|larger than the available KV cache memory"
            r"|Free memory on device .* is less than"
        ),
    ),
    # 0.32.0: a path that does not exist is taken for a hub's name, and the hub's library refuses it.
    (FailureKind.WEIGHTS, re.compile(r"HFValidationError|RepositoryNotFoundError|LocalEntryNotFoundError")),
    (FailureKind.WEIGHTS, re.compile(r"Cannot find any model weights|SafetensorError|Invalid repository ID or local")),
    (FailureKind.WEIGHTS, re.compile(r"FileNotFoundError.*(?:safetensors|\.bin|\.pt|config\.json)")),
    (
        FailureKind.BAD_CONFIGURATION,
        re.compile(r"Failed to infer device type|\d+ validation errors? for |architectures .* (?:not|are) supported"),
    ),
    (
        FailureKind.PEER_LOST,
        re.compile(
            r"DistStoreError|DistNetworkError|Connection (?:closed|reset) by (?:remote )?peer"
            r"|ncclRemoteError|Watchdog caught collective operation timeout"
        ),
    ),
)
# Lines that only point to a cause further up.
_FAREWELLS = re.compile(
    r"See root cause above|EngineDeadError|Engine core initialization failed|Engine core proc .* died"
    r"|output_handler failed"
)
# Lines that say nothing of the end. 0.32.0: a traceback's frames bear the log's prefix, and so its "ERROR"
# (`ERROR 11-30 09:26:07 [async_llm.py:906]     raise …`); a warning about ulimit names an OSError that did not happen;
# a library says last what it leaked.
_NOISE = re.compile(
    r"\[\w+\.py:\d+\](?: {2,}\S|$| Traceback )|\b(?:DEBUG|INFO|WARNING) \d\d-\d\d .*[Ee]rror"
    r"|^nanobind: |^- leaked |^- \.\.\. skipped |//nanobind\."
)


def explain_exit(exit: Exit) -> Failure | None:
    if exit.asked:
        return None
    lines = log_lines(exit.log_tail)
    refused = parser_error(lines) if exit.code == 2 else None
    if refused:
        return Failure(FailureKind.BAD_ARGUMENTS, refused)
    cause = find_cause(lines, _SIGNS)
    return Failure(*cause) if cause else _unexplained(exit, lines)


def _unexplained(exit: Exit, lines: list[str]) -> Failure:
    said = last_error([line for line in lines if not _NOISE.search(line)], _FAREWELLS)
    last = f"; it said last: {said}" if said else "; it said nothing"
    if exit.signal is not None:
        return Failure(FailureKind.KILLED, f"ended by {exit}{last}")
    if exit.code == 0:
        return Failure(FailureKind.CRASHED, f"ended with exit code 0 and nobody asked it to{last}")
    return Failure(FailureKind.CRASHED, f"ended with {exit}{last}")

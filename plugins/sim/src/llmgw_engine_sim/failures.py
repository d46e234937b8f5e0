"""Why a process of the simulated engine ended.

In: an `Exit`.  Out: a `Failure`, or `None` when it had been asked to stop.  Pure and total.
Rule: the sim says why in its last line, `llmgw-sim: rank 0: …`.
"""

from __future__ import annotations

import re
import signal

from llmgw_core.engine import Exit, Failure, FailureKind

_SAID = re.compile(r"llmgw-sim: (?:error|rank \d+): ")
_SIGNS = (
    (FailureKind.BAD_ARGUMENTS, re.compile(r"llmgw-sim: error: ")),
    (FailureKind.PORT_IN_USE, re.compile(r"cannot listen on ")),
    (FailureKind.PEER_LOST, re.compile(r"was lost|did not join|could not join|refused rank")),
)


def explain_exit(exit: Exit) -> Failure | None:
    """A worker ends non-zero when its head does, so on request any end will do."""
    if exit.asked:
        return None
    lines = [line.strip() for line in exit.log_tail.splitlines() if line.strip()]
    said = [line for line in lines if _SAID.match(line)]
    for kind, sign in _SIGNS:
        found = next((line for line in reversed(said) if sign.search(line)), None)
        if found:
            return Failure(kind, found)
    kind = FailureKind.KILLED if exit.signal in (signal.SIGKILL, signal.SIGTERM) else FailureKind.CRASHED
    return Failure(kind, f"it ended by itself with {exit}" + (f"; its last line: {lines[-1]}" if lines else ""))

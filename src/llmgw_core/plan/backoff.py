"""When to call again after a failure: full jitter, 1 s doubling to 30 s.

Pure: the random number is an argument. Source of the scheme: AWS Architecture Blog, "Exponential Backoff And Jitter".
"""

from __future__ import annotations

FIRST_S = 1.0
MOST_S = 30.0
RESET_AFTER_S = 60.0
"""A connection that held this long has been a success."""


def delay_s(failures: int, fraction: float, most_s: float = MOST_S) -> float:
    """Somewhere in the window of the `failures`-th failure in a row (from 1), at `fraction` in [0, 1) of it."""
    window = FIRST_S
    for _ in range(failures - 1):
        window = min(window * 2, most_s)
    return window * fraction


def failures_after(failures: int, connected_s: float) -> int:
    """The count after one more connection that ended, having held for `connected_s`."""
    return 1 if connected_s >= RESET_AFTER_S else failures + 1

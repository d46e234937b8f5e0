"""Whether an API key may send one request more now.

In: what is counted of the key over all workers.  Out: how long to wait, in seconds; 0 to go on.  Pure.
Rule: of the last minute counts what the present minute of the clock has, and of the one before the part that is no
older than 60 s, as if it had come evenly. So a minute of the clock never has more than `most`, and who asks evenly, so
often as allowed, is never refused.
"""

from __future__ import annotations

MINUTE_S = 60.0
_ROUNDING = 1e-6
BUSY_S = 1.0
"""After which to try again where too many requests are in flight: nobody knows when one ends."""


def wait_for_rate(now: float, this_minute: int, minute_before: int, most: int) -> float:
    """`now`: seconds since 1970."""
    passed = now % MINUTE_S
    if this_minute >= most:
        return MINUTE_S - passed
    seen = minute_before * (MINUTE_S - passed) / MINUTE_S + this_minute
    return (seen - most) * MINUTE_S / minute_before if seen > most + _ROUNDING else 0.0

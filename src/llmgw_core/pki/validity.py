"""How long a certificate is good, in words and numbers; pure.

In: dates and `now`, all with a time zone.  Out: days, texts, and whether to renew.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LIFE_DAYS = 90
AUTHORITY_LIFE_DAYS = 3650
AUTHORITY_WARNING_DAYS = 90
WARNING_DAYS = (30, 7, 1)
BACKDATED = timedelta(minutes=5)
"""A certificate begins this long before it is made: two clocks are never the same."""

DAY = timedelta(days=1)


def days_left(not_after: datetime, now: datetime) -> int:
    """Whole days until the end; negative once it is past."""
    return (not_after - now) // DAY


def describe_time(moment: datetime) -> str:
    """`2026-03-01T12:00:00Z`: one spelling for all messages, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def describe_span(span: timedelta) -> str:
    """The size of a span in its largest unit: `2 days`, `1 hour`, `17 minutes`."""
    seconds = abs(int(span.total_seconds()))
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return _counted(seconds // size, unit)
    return _counted(seconds, "second")


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def describe_left(not_after: datetime, now: datetime) -> str:
    """`89 days`, `5 hours`, or `expired 2 days ago`."""
    if has_ended(not_after, now):
        return f"expired {describe_span(now - not_after)} ago"
    return describe_span(not_after - now)


def has_ended(not_after: datetime, now: datetime) -> bool:
    """The last second of a certificate's life still counts, as X.509 has it."""
    return now >= not_after + timedelta(seconds=1)


def expiry_warning(not_after: datetime, now: datetime) -> str | None:
    """What to say of a certificate that ends soon; it sharpens at 30, 7 and 1 days."""
    reached = [days for days in WARNING_DAYS if not_after - now <= days * DAY]
    if not reached:
        return None
    if has_ended(not_after, now):
        return f"certificate expired on {describe_time(not_after)}, {describe_span(now - not_after)} ago"
    urgency = {30: "soon", 7: "this week", 1: "today"}[reached[-1]]
    return f"certificate ends in {describe_left(not_after, now)}, on {describe_time(not_after)}: renew it {urgency}"


def renewal_due(not_before: datetime, not_after: datetime, now: datetime) -> bool:
    """Two thirds of the life have passed."""
    return now >= not_before + (not_after - not_before) * 2 / 3


def cut_life(not_after: datetime, authority_end: datetime) -> tuple[datetime, str | None]:
    """The end that the authority can vouch for, and what to say when it is earlier than was asked."""
    if not_after <= authority_end:
        return not_after, None
    asked, end = describe_time(not_after), describe_time(authority_end)
    return authority_end, f"the certificate ends on {end}, with its authority, and not on {asked}"

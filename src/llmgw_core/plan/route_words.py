"""Why a model takes no requests, in one sentence for whoever asked for it.

In: a model's route, now.  Out: `no replica of qwen3 is ready: 1 starting (loading for 40 s), 1 unplaced (needs 8 GPUs,
4 free)`.  Pure.
Rules: replicas that are alike are counted, not listed, those that are nearest to being ready first; what is said of
them is how it has been for the longest of them; the whole is one line of at most `MOST_CHARACTERS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmgw_core.model.route import Absent, ModelRoute

MOST_CHARACTERS = 400
_REASON_CHARACTERS = 120
_NAMED = 4
"""So many kinds of absence are named."""
_ORDER = ("unready", "starting", "stopping", "failed", "pending", "unplaced")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def why_none_is_ready(route: ModelRoute, now: float) -> str:
    """`now`: seconds since 1970."""
    begin = f"no replica of {route.name} is ready: "
    if not route.absent:
        return begin + "none is wanted"
    alike: dict[tuple[str, str], list[Absent]] = {}
    for each in sorted(route.absent, key=_order):
        alike.setdefault((each.state, each.reason), []).append(each)
    parts = [_tell(those, now) for those in list(alike.values())[:_NAMED]]
    others = sum(len(those) for those in list(alike.values())[_NAMED:])
    parts += [f"{others} other{'s' if others > 1 else ''}"] if others else []
    return _cut(begin + ", ".join(parts), MOST_CHARACTERS)


def how_long(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h`, `3 d`: whole ones, from two of them on."""
    for unit, name in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def _tell(those: Sequence[Absent], now: float) -> str:
    first = those[0]
    since = min((each.since for each in those if each.since is not None), default=None)
    lasting = f"for {how_long(now - since)}" if since is not None else ""
    note = " ".join(filter(None, (_cut(first.reason, _REASON_CHARACTERS), lasting)))
    return f"{len(those)} {first.state}" + (f" ({note})" if note else "")


def _order(absent: Absent) -> tuple[int, str, str]:
    known = _ORDER.index(absent.state) if absent.state in _ORDER else len(_ORDER)
    return known, absent.state, absent.reason


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"

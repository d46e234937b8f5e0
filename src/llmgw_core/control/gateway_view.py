"""The gateways as an operator sees them: plain values."""

from __future__ import annotations

from math import isfinite
from typing import Any

import attrs

from llmgw_core.control.arguments import Arguments
from llmgw_core.control.plane import Plane
from llmgw_core.control.routing import Subscription
from llmgw_core.control.view import DAY_S
from llmgw_core.wire.facts import clipped, fitting
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

LIST_BYTES = MESSAGE_LIMIT_BYTES // 2
MOST_LINGERING = 100
"""Attempts that are listed of one."""


async def list_gateways(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """Those that are there, and those that went so lately that a stop may wait for them."""
    subscriptions = plane.routes.subscriptions
    views = [_view(plane, subscriptions[who]) for who in sorted(subscriptions)]
    return fitting(views, LIST_BYTES, last=False)


def _view(plane: Plane, gateway: Subscription) -> dict[str, Any]:
    """`days_left` is of the certificate, and none for one in this process; times are seconds since 1970."""
    name, instance = gateway.who
    days = int((gateway.until - plane.now()) // DAY_S) if isfinite(gateway.until) else None
    return {
        "name": name,
        "instance": clipped(instance, 200),
        "state": _state(gateway),
        "address": gateway.address,
        "version": gateway.version,
        "current": plane.routes.version,
        "behind_s": plane.now() - gateway.behind_since if gateway.behind_since is not None else None,
        "lingering": [attrs.asdict(each) for each in gateway.lingering[:MOST_LINGERING]],
        "since": gateway.since or None,
        "silent_since": gateway.observed().silent_since,
        "days_left": days,
    }


def _state(gateway: Subscription) -> str:
    if not gateway.live:
        return "gone"
    return "silent" if gateway.silent_since() is not None else "connected"

"""How a node is, by when it was last heard.

In: times in seconds, and whether it is connected.  Out: a state.  Pure.
Rules: silence is not death: a node is `suspect` after two missed beats and `lost` only after `LOST_AFTER_S`; after the
control plane has started nobody is lost before the grace is over.
"""

from __future__ import annotations

from enum import Enum

HEARTBEAT_S = 5.0
FLEET_BEATS_PER_S = 50.0
"""The most beats that the whole fleet sends in a second; the interval is stretched to keep it."""
MISSED_BEATS = 2
LOST_AFTER_S = 60.0
GRACE_S = 60.0


class NodeState(Enum):
    ONLINE = "online"
    SUSPECT = "suspect"
    LOST = "lost"
    WAITING = "waiting"
    """Known from before the control plane started, and not back yet."""


def heartbeat_interval_s(nodes: int) -> float:
    return max(HEARTBEAT_S, nodes / FLEET_BEATS_PER_S)


def is_silent(last_heard: float, now: float, interval_s: float) -> bool:
    """Whether it missed its beats."""
    return now - last_heard > MISSED_BEATS * interval_s


def node_state(
    *, connected: bool, last_heard: float, started: float, now: float, interval_s: float, grace_s: float = GRACE_S
) -> NodeState:
    """`started`: when the control plane did."""
    if connected and not is_silent(last_heard, now, interval_s):
        return NodeState.ONLINE
    if last_heard < started and now - started < grace_s:
        return NodeState.WAITING
    return NodeState.LOST if now - last_heard > LOST_AFTER_S else NodeState.SUSPECT

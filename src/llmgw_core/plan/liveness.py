"""How a node is, by when it was last heard.

In: times in seconds, and whether it is connected.  Out: a state.  Pure.
Rules: silence is not death: a node is `suspect` after two missed beats and `lost` only after `lost_after_s`; after the
control plane has started nobody is lost before the grace is over; what it overslept itself is nobody's silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from attrs import frozen

from llmgw_core.errors import LlmgwError

HEARTBEAT_S = 5.0
FLEET_BEATS_PER_S = 50.0
"""The most beats that the whole fleet sends in a second; the interval is stretched to keep it."""
MISSED_BEATS = 2
LOST_AFTER_S = 60.0
SLEEP_S = 1.0
"""The control plane looks at the clock again and again; one look that is late by more than this is a sleep."""


class BadPace(LlmgwError):
    """Times that contradict each other."""


@frozen
class Pace:
    """How often nodes are heard, and how long silence is borne."""

    heartbeat_s: float = HEARTBEAT_S
    lost_after_s: float = LOST_AFTER_S
    """Of silence; and the grace after a start of the control plane."""

    def __attrs_post_init__(self) -> None:
        if not 0 < MISSED_BEATS * self.heartbeat_s < self.lost_after_s:
            raise BadPace(
                f"a node cannot be lost after {self.lost_after_s:g} s: it is suspect only after {MISSED_BEATS} missed "
                f"heartbeats of {self.heartbeat_s:g} s"
            )


@frozen
class Sleep:
    """A time in which the control plane itself did nothing: it was stopped, starved, or its clock was set forward."""

    ended: float
    seconds: float


def find_sleep(last_look: float, now: float, every_s: float) -> Sleep | None:
    """Between two looks at the clock that should be `every_s` apart."""
    late = now - last_look - every_s
    return Sleep(now, late) if late > SLEEP_S else None


def slept_since(last_heard: float, sleeps: Iterable[Sleep]) -> float:
    """The seconds of which a node that was last heard then is not to blame."""
    return sum(sleep.seconds for sleep in sleeps if sleep.ended > last_heard)


class NodeState(Enum):
    ONLINE = "online"
    SUSPECT = "suspect"
    LOST = "lost"
    WAITING = "waiting"
    """Known from before the control plane started, and not back yet."""


def heartbeat_interval_s(nodes: int, least_s: float = HEARTBEAT_S) -> float:
    return max(least_s, nodes / FLEET_BEATS_PER_S)


def is_silent(last_heard: float, now: float, interval_s: float) -> bool:
    """Whether it missed its beats."""
    return now - last_heard > MISSED_BEATS * interval_s


def node_state(
    *,
    connected: bool,
    last_heard: float,
    started: float,
    now: float,
    interval_s: float,
    lost_after_s: float = LOST_AFTER_S,
) -> NodeState:
    """`started`: when the control plane did; `now`: less what it has slept since the node was last heard."""
    if connected and not is_silent(last_heard, now, interval_s):
        return NodeState.ONLINE
    if last_heard < started and now - started < lost_after_s:
        return NodeState.WAITING
    return NodeState.LOST if now - last_heard > lost_after_s else NodeState.SUSPECT

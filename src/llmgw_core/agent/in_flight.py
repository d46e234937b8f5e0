"""Waits for the requests that an engine works on, before it is told to stop.

Rules: an engine that does not say how many there are is not waited for; neither is one that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from llmgw_core.agent.asking import METRICS_BYTES, ask
from llmgw_core.engine import Probe, ReplyKind
from llmgw_core.plan.health_watch import read_movement

LOOK_EVERY_S = 0.25


async def wait_until_idle(probe: Probe | None, left_s: Callable[[], float], tell: Callable[[str], None]) -> None:
    """Until nothing is in flight, or no time is left; `left_s` may change meanwhile."""
    while probe is not None and left_s() > 0:
        running = await _running(probe)
        if not running:
            return
        tell(f"{running:g} requests are in flight, for which it waits {left_s():.0f} s more at most")
        await trio.sleep(LOOK_EVERY_S)


async def _running(probe: Probe) -> float:
    if probe.progress is None:
        return 0.0
    reply = await ask(probe.endpoint, probe.progress.path, probe.timeout_s, api_key=probe.api_key, most=METRICS_BYTES)
    movement = read_movement(reply.body, probe.progress) if reply.kind is ReplyKind.ANSWERED else None
    return movement.running if movement is not None else 0.0

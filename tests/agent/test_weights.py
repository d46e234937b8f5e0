"""Weights that block keep one thread."""

import threading

import trio

from llmgw_core.agent.weights import Weights
from llmgw_core.testing.running_node import DEADLINE_S


async def test_a_source_that_blocks_keeps_one_thread_and_no_other_source_waiting() -> None:
    release, started = threading.Event(), []

    def look(source: str) -> str:
        started.append(source)
        if source == "/dead/nfs":
            release.wait(2 * DEADLINE_S)
        return ""

    weights = Weights(look, limit_s=0.05)
    with trio.fail_after(DEADLINE_S):
        for _ in range(5):
            assert "could not be read within 0.05 s" in await weights.trouble("/dead/nfs")
        weights.limit_s = DEADLINE_S
        assert await weights.trouble("/models/m") == ""
    assert started == ["/dead/nfs", "/models/m"]
    release.set()

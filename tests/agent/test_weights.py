"""Weights that block keep one thread."""

import threading

import trio

from llmgw_core.agent.weights import Weights


async def test_a_source_that_blocks_keeps_one_thread_and_no_other_source_waiting() -> None:
    release, started = threading.Event(), []

    def look(source: str) -> str:
        started.append(source)
        if source == "/dead/nfs":
            release.wait(20)
        return ""

    weights = Weights(look, limit_s=0.05)
    with trio.fail_after(10):
        for _ in range(5):
            assert "could not be read within 0.05 s" in await weights.trouble("/dead/nfs")
        weights.limit_s = 5
        assert await weights.trouble("/models/m") == ""
    assert started == ["/dead/nfs", "/models/m"]
    release.set()

"""A link that has ended leaves nothing to the garbage collector, which would stop the loop for all others."""

from __future__ import annotations

import gc
from pathlib import Path

import trio

from llmgw_core.testing.light_agent import LightAgent, facts_of_a_node
from llmgw_core.testing.made_fleet import running_control, until


async def test_an_ended_link_is_gone_at_once(tmp_path: Path) -> None:
    async with running_control(tmp_path) as control:
        agent = LightAgent("gpu1", control.server, control.node("gpu1"), facts_of_a_node(1))
        gc.collect()
        gc.disable()
        try:
            for turn in range(1, 4):
                async with agent.talk() as link:
                    await agent.beat(link)
                await control.log.wait_for("node disconnected", times=turn)
            await until(lambda: servers_streams() == 0)
        finally:
            gc.enable()


def servers_streams() -> int:
    streams = [each for each in gc.get_objects() if type(each) is trio.SSLStream]
    return sum(each._ssl_object.server_side for each in streams)

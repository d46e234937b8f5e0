"""Many agents of a fleet in one process, led over its standard input: `connect`, `beat SECONDS`, `storm`.

many_agents.py PORT PKI FIRST COUNT BEAT_S
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import trio
from attrs import define, field

from llmgw_core.cli.identity import identity_files
from llmgw_core.net import call
from llmgw_core.net.call import NotReached, Server
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.tls import client_context
from llmgw_core.plan.backoff import delay_s
from llmgw_core.testing.light_agent import LightAgent, facts_of_a_node, node_name


@define
class Fleet:
    agents: list[LightAgent]
    beat_s: float
    links: dict[str, Link] = field(factory=dict)
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    half: float = 0.0
    """When half of them were connected."""
    late: int = 0
    """Calls that came to nothing."""

    async def connect(self, nursery: trio.Nursery) -> dict[str, float]:
        """All at once, with no jitter: the worst that can come."""
        self.links.clear()
        self.late = 0
        everybody = trio.Event()
        begun = trio.current_time()

        async def hold(agent: LightAgent) -> None:
            while True:
                # On a machine that is too slow for all at once, a caller comes too late and calls again, as agents do.
                with suppress(NotReached, LinkClosed):
                    async with agent.talk() as link:
                        self.links[agent.name] = link
                        if len(self.links) == len(self.agents) // 2:
                            self.half = trio.current_time()
                        if len(self.links) == len(self.agents):
                            everybody.set()
                        await trio.sleep_forever()
                self.late += 1
                await trio.sleep(delay_s(1, random.random()))  # noqa: S311 - it spreads calls, it hides nothing

        self.scope = trio.CancelScope()
        nursery.start_soon(self._hold_all, hold)
        with trio.fail_after(120):
            await everybody.wait()
        return {"s": trio.current_time() - begun, "half_s": self.half - begun, "late": self.late}

    async def _hold_all(self, hold: object) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                for agent in self.agents:
                    nursery.start_soon(hold, agent)  # type: ignore[arg-type]

    async def beat(self, seconds: float) -> dict[str, float]:
        took: list[float] = []
        until = trio.current_time() + seconds

        async def keep(agent: LightAgent, index: int) -> None:
            await trio.sleep(self.beat_s * index / len(self.agents))
            while trio.current_time() < until:
                took.append(await agent.beat(self.links[agent.name]))
                await trio.sleep(max(0.0, self.beat_s - took[-1]))

        async with trio.open_nursery() as nursery:
            for index, agent in enumerate(self.agents):
                nursery.start_soon(keep, agent, index)
        took.sort()
        return {
            "p50_ms": took[len(took) // 2] * 1e3,
            "p99_ms": took[int(0.99 * (len(took) - 1))] * 1e3,
            "per_s": len(took) / seconds,
        }


async def main(*arguments: str) -> None:
    port, pki, first, count, beat_s = arguments
    server = Server("127.0.0.1", int(port))
    numbers = range(int(first), int(first) + int(count))
    agents = [
        LightAgent(name, server, identity_files(str(Path(pki) / name)), facts_of_a_node(number))
        for number, name in ((number, node_name(number)) for number in numbers)
    ]
    fleet = Fleet(agents, float(beat_s))
    # Each agent of a real fleet reads its files on a machine of its own; here that is no part of what is measured.
    contexts = cache(client_context)
    call.client_context = contexts  # type: ignore[attr-defined]
    for agent in agents:
        contexts(agent.credentials)
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    print(json.dumps({}), flush=True)
    async with trio.open_nursery() as nursery:
        while True:
            await trio.lowlevel.wait_readable(0)
            words = os.read(0, 4096).decode().split()
            match words:
                case ["connect"]:
                    answer = await fleet.connect(nursery)
                case ["beat", seconds]:
                    answer = await fleet.beat(float(seconds))
                case ["storm"]:
                    fleet.scope.cancel()
                    answer = await fleet.connect(nursery)
                case _:
                    break
            print(json.dumps(answer), flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])

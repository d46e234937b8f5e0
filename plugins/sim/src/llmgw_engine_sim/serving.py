"""The life of one simulated process: meet the others, load, serve until SIGTERM or until one of them is lost.

It ends with 0 when it was asked to, else with 1 and one line on stderr that says why.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial

import trio
from attrs import define

from llmgw_engine_sim.http import Shutdown, serve_connection
from llmgw_engine_sim.options import Options
from llmgw_engine_sim.rendezvous import CannotMeet, Gathering, join, listen_at, watch_head
from llmgw_engine_sim.routes import Api


def run(options: Options) -> int:
    return trio.run(partial(_live, options))


@define
class _Life:
    """How the process ends; ending it cancels all that it does."""

    rank: int
    scope: trio.CancelScope
    code: int = 0

    def say(self, line: str) -> None:
        print(f"llmgw-sim: rank {self.rank}: {line}", file=sys.stderr, flush=True)

    def fail(self, reason: str) -> None:
        if not self.code:
            self.code = 1
            self.say(reason)
        self.scope.cancel()


async def _live(options: Options) -> int:
    async with trio.open_nursery() as nursery:
        life = _Life(options.node_rank, nursery.cancel_scope)
        shutdown = Shutdown()
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            nursery.start_soon(_end_on_signal, signals, shutdown, life)
            try:
                await _take_part(options, nursery, shutdown, life)
            except CannotMeet as error:
                life.fail(str(error))
            nursery.cancel_scope.cancel()
    return life.code


async def _end_on_signal(signals: AsyncIterator[int], shutdown: Shutdown, life: _Life) -> None:
    """The first signal lets requests in flight end, where the process serves; the second does not."""
    async for number in signals:
        if shutdown.asked or not shutdown.serving:
            life.scope.cancel()
            return
        life.say(f"{signal.Signals(number).name}: finishing what is in flight")
        shutdown.ask()


async def _take_part(options: Options, nursery: trio.Nursery, shutdown: Shutdown, life: _Life) -> None:
    if options.dist_init_addr is None:
        await _serve(options, shutdown, life)
    elif options.node_rank > 0:
        await _work(options, options.dist_init_addr, life)
    else:
        gathering = Gathering(options.nnodes, nursery, life.fail)
        await gathering.gather(await listen_at(*options.dist_init_addr), options.join_timeout)
        life.say(f"all {options.nnodes} ranks joined")
        await _serve(options, shutdown, life)


async def _work(options: Options, head: tuple[str, int], life: _Life) -> None:
    stream = await join(*head, options.node_rank, options.nnodes, options.join_timeout)
    life.say("joined")
    await watch_head(stream, life.fail)


async def _serve(options: Options, shutdown: Shutdown, life: _Life) -> None:
    listeners = await listen_at(options.host, options.port)
    api = Api(options, os.environ.get("SIM_API_KEY"))
    port = listeners[0].socket.getsockname()[1]
    life.say(f"listening on {options.host}:{port}")
    async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
        shutdown.serving = True
        handler = partial(serve_connection, handler=api.handle, shutdown=shutdown)
        accepting.start_soon(partial(trio.serve_listeners, handler, list(listeners), handler_nursery=connections))
        await _load(options, api, life, shutdown)
        await shutdown.wait()
        accepting.cancel_scope.cancel()


async def _load(options: Options, api: Api, life: _Life, shutdown: Shutdown) -> None:
    with shutdown.ends_wait(options.load_time):
        await trio.sleep_forever()
    if not shutdown.asked:
        api.loaded = True
        life.say("ready")

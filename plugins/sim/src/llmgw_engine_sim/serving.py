"""The life of one simulated process: meet the others, load, serve until SIGTERM or until one of them is lost.

It ends with 0 when it was asked to, else with 1 and one line on stderr that says why.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

import trio

from llmgw_engine_sim.faults import Script
from llmgw_engine_sim.http import Request, Response, Shutdown, serve_connection
from llmgw_engine_sim.options import Options
from llmgw_engine_sim.rendezvous import CannotMeet, Gathering, join, listen_at, watch_head
from llmgw_engine_sim.routes import Api


def run(options: Options) -> int:
    return trio.run(_live, options)


async def _live(options: Options) -> int:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            member = _Member(options, nursery)
            nursery.start_soon(member.heed, signals)
            try:
                member.leave_orphan()
                await member.take_part()
            except CannotMeet as error:
                member.fail(str(error))
            nursery.cancel_scope.cancel()
        if member.asked:
            await member.script.linger()
    return member.code


class _Member:
    """One process of a replica; `code` is what it ends with. Cancelling the nursery ends all that it does."""

    def __init__(self, options: Options, nursery: trio.Nursery) -> None:
        self._options = options
        self._nursery = nursery
        self._shutdown = Shutdown()
        self.script = Script(options.faults, options.node_rank, self.say)
        self.code = 0
        self.asked = False

    def say(self, line: str) -> None:
        with suppress(OSError):  # a full disk under the log is no reason to end
            os.write(2, f"llmgw-sim: rank {self._options.node_rank}: {line}\n".encode())

    def fail(self, reason: str) -> None:
        if not self.code:
            self.code = 1
            self.say(reason)
        self._nursery.cancel_scope.cancel()

    async def heed(self, signals: AsyncIterator[int]) -> None:
        """The first signal lets requests in flight end, where the process serves; the second does not."""
        async for number in signals:
            if number == signal.SIGTERM and self.script.ignores_sigterm:
                continue
            self.asked = True
            if self._shutdown.asked or not self._shutdown.serving:
                self._nursery.cancel_scope.cancel()
                return
            self.say(f"{signal.Signals(number).name}: finishing what is in flight")
            self._shutdown.ask()

    def leave_orphan(self) -> None:
        file = self.script.orphan
        if file is None:
            return
        from llmgw_engine_sim.orphan import Held, leave_orphan

        try:
            self.say(f"fault: its child is process {leave_orphan(file)}")
        except (Held, OSError) as error:
            raise CannotMeet(f"cannot start: {error}") from error

    async def take_part(self) -> None:
        options = self._options
        if options.dist_init_addr is None:
            await self._serve()
        elif options.node_rank > 0:
            await self._work(*options.dist_init_addr)
        else:
            gathering = Gathering(options.nnodes, self._nursery, self._lose_worker)
            await gathering.gather(await listen_at(*options.dist_init_addr), options.join_timeout)
            self.say(f"all {options.nnodes} ranks joined")
            await self._serve()

    def _lose_worker(self, reason: str) -> None:
        if self.script.deaf:  # as an engine whose next all-reduce never ends
            self.script.hung = True
        else:
            self.fail(reason)

    async def _work(self, host: str, port: int) -> None:
        options = self._options
        stream = await join(host, port, options.node_rank, options.nnodes, options.join_timeout)
        self.say("joined")
        self._nursery.start_soon(watch_head, stream, self.fail)
        await self._load()
        self._nursery.start_soon(self.script.as_worker)
        await trio.sleep_forever()

    async def _serve(self) -> None:
        self._shutdown.serving = True
        if self.script.refuses_port:
            await self._shutdown.wait()
            return
        listeners = await listen_at(self._options.host, self._options.port)
        api = Api(self._options, os.environ.get("SIM_API_KEY"), self.script)
        port = listeners[0].socket.getsockname()[1]
        self.say(f"listening on {self._options.host}:{port}")
        async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
            answered = partial(self._count, api)
            handler = partial(serve_connection, handler=api.handle, answered=answered, shutdown=self._shutdown)
            accepting.start_soon(partial(trio.serve_listeners, handler, list(listeners), handler_nursery=connections))
            await self._load()
            api.loaded = not self._shutdown.asked
            await self._shutdown.wait()
            accepting.cancel_scope.cancel()

    async def _load(self) -> None:
        seconds = self._options.load_time
        self.say(f"loading {self._options.model} ({seconds:g} s)")
        with self._shutdown.ends_wait(math.inf):
            await self.script.load(seconds)
        if not self._shutdown.asked:
            self.say("ready")
            self._nursery.start_soon(self.script.after_ready)

    def _count(self, api: Api, request: Request, response: Response) -> None:
        """Of what is asked every other second there is no word in the log."""
        if request.method == "POST":
            api.answered += 1
            self.say(f"request {api.answered}: {request.path} answered with {response.status}")
            self.script.after_request(api.answered)

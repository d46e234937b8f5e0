"""A control plane that is asked, over its standard input, how it is: `probe` answers the worst of its loop since then.

probed_control.py IDENTITY STATE

Lag is by how much a sleep is late, as a heartbeat would be: on a busy machine others' work is in it. A turn is the CPU
time of all that the loop does between two looks at its sockets: that is its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import trio

from llmgw_core.cli.identity import identity_files
from llmgw_core.control.app import ControlSettings, run_control
from llmgw_core.log import set_up_logs

SAMPLE_S = 0.005
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Turns(trio.abc.Instrument):
    """How much CPU time each turn of the loop takes."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._begun = time.thread_time()

    def after_io_wait(self, timeout: float) -> None:
        self._begun = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        self.took.append(time.thread_time() - self._begun)


async def sample(lags: list[float]) -> None:
    while True:
        begun = trio.current_time()
        await trio.sleep(SAMPLE_S)
        lags.append(trio.current_time() - begun - SAMPLE_S)


def figures(lags: list[float], turns: Turns) -> dict[str, float]:
    in_order, longest = sorted(lags) or [0.0], max(turns.took, default=0.0)
    lags.clear()
    turns.took.clear()
    return {
        "lag_ms": in_order[-1] * 1e3,
        "lag_p99_ms": in_order[int(0.99 * (len(in_order) - 1))] * 1e3,
        "turn_ms": longest * 1e3,
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES,
        "cpu_s": time.process_time(),
    }


async def main(*arguments: str) -> None:
    identity, state = arguments
    lags: list[float] = []
    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    settings = ControlSettings(Path(state), identity_files(identity), "127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(run_control, settings)
        print(json.dumps({"port": listeners[0].socket.getsockname()[1]}), flush=True)
        nursery.start_soon(sample, lags)
        while True:
            await trio.lowlevel.wait_readable(0)
            if not os.read(0, 4096):
                break
            print(json.dumps(figures(lags, turns)), flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    set_up_logs()
    trio.run(main, *sys.argv[1:])

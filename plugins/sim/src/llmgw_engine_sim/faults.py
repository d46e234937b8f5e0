"""When the faults of one process strike, and what happens then.

Rule: what strikes says so in the log, unless its point is silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import trio

from llmgw_engine_sim.fault_flags import Faults

HELD_LOOK_S = 0.05
"""How often a process that is held looks whether it still is."""


class Script:
    """The faults of one process: `say` writes its log."""

    def __init__(self, faults: Faults, rank: int, say: Callable[[str], None]) -> None:
        self._say = say
        self._once = faults.once
        open_still = faults.once is None or not os.path.lexists(faults.once)
        self._faults = faults if open_still and faults.rank in (None, rank) else Faults()
        self._claimed = False
        self.deaf = open_still and faults.die_silently is not None
        """Whether a lost worker is not noticed."""
        self.hung = False
        self._unready = False
        self._told_unready = False

    @property
    def orphan(self) -> str | None:
        """The file that a child is to be left with."""
        return self._faults.orphan if self._faults.orphan and self._strikes("leaves a child") else None

    @property
    def refuses_port(self) -> bool:
        return self._faults.refuse_port and self._strikes("does not listen")

    @property
    def ignores_sigterm(self) -> bool:
        return self._faults.ignore_sigterm and self._strikes("ignores SIGTERM")

    @property
    def unready(self) -> bool:
        held = _is_there(self._faults.hold_health) and self._strikes(None if self._told_unready else "is held unready")
        self._told_unready = held
        return self._unready or held

    async def load(self, seconds: float) -> None:
        """Lasts at least until a crash that is to happen meanwhile, and as long as it is held."""
        crash = self._faults.crash_while_loading
        if crash is not None:
            await trio.sleep(crash)
            self._end("crashes while it loads", 1)
        await trio.sleep(seconds - min(seconds, crash or 0))
        await self._hold(self._faults.hold_loading, "is held while it loads")

    async def after_ready(self) -> None:
        """Waits for whatever is to happen by the clock."""
        faults = self._faults
        happens: tuple[tuple[float | None, Callable[[], None]], ...] = (
            (faults.crash_after_ready, lambda: self._end("crashes", 1)),
            (faults.exit_zero, lambda: self._end("ends with 0", 0)),
            (faults.hang_after_ready, self._hang),
            (faults.unready_after_ready, self._turn_unready),
        )
        async with trio.open_nursery() as nursery:
            for seconds, happen in happens:
                if seconds is not None:
                    nursery.start_soon(_call_after, seconds, happen)
            if faults.unready_after_ready is not None and faults.unready_for is not None:
                nursery.start_soon(_call_after, faults.unready_after_ready + faults.unready_for, self._turn_ready)

    async def as_worker(self) -> None:
        if self._faults.die_silently is not None:
            await trio.sleep(self._faults.die_silently)
            if self._strikes(None):
                os._exit(0)

    def after_request(self, answered: int) -> None:
        if answered == self._faults.crash_after_requests:
            self._end(f"crashes after {answered} requests", 1)
        if answered == self._faults.hang_after_requests:
            self._hang()

    async def linger(self) -> None:
        """After it was asked to end, and all else has ended."""
        if self._faults.slow_stop is not None and self._strikes(f"takes {self._faults.slow_stop:g} s to end"):
            await trio.sleep(self._faults.slow_stop)
        await self._hold(self._faults.hold_stop, "is held while it ends")

    async def before_token(self) -> None:
        """Lasts as long as no token may be given."""
        await self._hold(self._faults.hold_tokens, "is held before a token")
        if self.hung:
            await trio.sleep_forever()

    async def _hold(self, file: str | None, what: str) -> None:
        if _is_there(file) and self._strikes(what):
            while _is_there(file):  # noqa: ASYNC110 - a file that goes gives no event
                await trio.sleep(HELD_LOOK_S)

    def _hang(self) -> None:
        if self._strikes("hangs"):
            self.hung = True

    def _turn_unready(self) -> None:
        if self._strikes("is unready"):
            self._unready = True

    def _turn_ready(self) -> None:
        self._unready = False

    def _end(self, how: str, code: int) -> None:
        """As a crash does: at once, with nothing closed."""
        if self._strikes(how):
            os._exit(code)

    def _strikes(self, what: str | None) -> bool:
        """Whether a fault may happen now; says `what` it is, and that it has happened once."""
        if not self._claimed and self._once is not None:
            try:
                os.close(os.open(self._once, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except OSError:  # another process was first, or there is no such directory
                return False
        self._claimed = True
        if what:
            self._say(f"fault: {what}")
        return True


def _is_there(file: str | None) -> bool:
    return file is not None and os.path.lexists(file)


async def _call_after(seconds: float, call: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    call()

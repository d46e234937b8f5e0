"""How the processes of a simulated replica find each other, and notice that one of them is gone.

Rank 0 listens at the dist-init address until every other rank has joined; a worker tries until it gets in. Each holds
its connection for life: when it breaks, the other side ends.
The words, one line each: worker `join RANK NNODES`; head `welcome`, or `refused …` and the end.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import trio

_LINE_BYTES = 256
_SAY_WITHIN_S = 5.0
_RETRY_S = 0.05


class CannotMeet(Exception):
    """The replica is not complete, or no longer; the text says which rank and why."""


async def listen_at(host: str, port: int) -> Sequence[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(port, host=host)  # sets SO_REUSEADDR, so TIME_WAIT does not count
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else str(error)
        raise CannotMeet(f"cannot listen on {host}:{port}: {reason}") from error


class Gathering:
    """Rank 0's side: who has joined. `lost` is called for each rank that joined and is gone."""

    def __init__(self, nnodes: int, nursery: trio.Nursery, lost: Callable[[str], None]) -> None:
        self._nnodes = nnodes
        self._nursery = nursery
        self._lost = lost
        self._joined: set[int] = set()
        self._complete = trio.Event()

    async def gather(self, listeners: Sequence[trio.SocketListener], timeout_s: float) -> None:
        """Returns when every rank has joined; from then on nobody else can."""
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(self._accept, listener, nursery)
            with trio.move_on_after(timeout_s):
                await self._complete.wait()
            nursery.cancel_scope.cancel()
        for listener in listeners:
            await listener.aclose()
        missing = sorted(set(range(1, self._nnodes)) - self._joined)
        if missing:
            ranks = ", ".join(map(str, missing))
            raise CannotMeet(f"rank {ranks} of {self._nnodes} did not join within {timeout_s:g} s")

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(self._admit, await listener.accept())

    async def _admit(self, stream: trio.SocketStream) -> None:
        reason, rank = "refused: no greeting", 0
        try:
            reason, rank = self._judge(await _read_line(stream))
            await stream.send_all(f"{reason or 'welcome'}\n".encode())
        except trio.BrokenResourceError:
            reason = "gone"
        finally:
            if reason:
                await trio.aclose_forcefully(stream)
        if not reason:
            self._hold(rank, stream)

    def _hold(self, rank: int, stream: trio.SocketStream) -> None:
        self._nursery.start_soon(_call_when_gone, stream, f"rank {rank} was lost", self._lost)
        if len(self._joined) == self._nnodes - 1:
            self._complete.set()

    def _judge(self, line: str) -> tuple[str, int]:
        """Why the process that says this is refused, or nothing; and its rank."""
        words = line.split()
        if len(words) != 3 or words[0] != "join" or not (words[1] + words[2]).isdecimal():
            return "refused: expected `join RANK NNODES`", 0
        rank, nnodes = int(words[1]), int(words[2])
        if nnodes != self._nnodes:
            return f"refused rank {rank}: it counts {nnodes} nodes, rank 0 counts {self._nnodes}", rank
        if not 0 < rank < nnodes or rank in self._joined:
            return f"refused rank {rank}: it has joined already or cannot be", rank
        self._joined.add(rank)
        return "", rank


async def join(host: str, port: int, rank: int, nnodes: int, timeout_s: float) -> trio.SocketStream:
    """A worker's side: the connection to rank 0, once it is let in."""
    with trio.move_on_after(timeout_s):
        while True:
            answer, stream = await _try_to_join(host, port, rank, nnodes)
            if answer == "welcome" and stream is not None:
                return stream
            if answer.startswith("refused"):
                raise CannotMeet(f"{answer} (rank 0 at {host}:{port})")
            await trio.sleep(_RETRY_S)
    raise CannotMeet(f"could not join rank 0 at {host}:{port} within {timeout_s:g} s")


async def _try_to_join(host: str, port: int, rank: int, nnodes: int) -> tuple[str, trio.SocketStream | None]:
    try:
        stream = await trio.open_tcp_stream(host, port)
        await stream.send_all(f"join {rank} {nnodes}\n".encode())
    except (OSError, trio.BrokenResourceError):
        return "", None
    answer = await _read_line(stream)
    if answer != "welcome":
        await trio.aclose_forcefully(stream)
    return answer, stream


async def watch_head(stream: trio.SocketStream, lost: Callable[[str], None]) -> None:
    await _call_when_gone(stream, "rank 0 was lost", lost)


async def _call_when_gone(stream: trio.SocketStream, what: str, lost: Callable[[str], None]) -> None:
    async with stream:
        try:
            while await stream.receive_some(_LINE_BYTES):
                pass
        except trio.BrokenResourceError:
            pass
        lost(what)


async def _read_line(stream: trio.SocketStream) -> str:
    """The first line, without its end; empty when none comes in time."""
    read = b""
    with trio.move_on_after(_SAY_WITHIN_S):
        try:
            while b"\n" not in read and len(read) < _LINE_BYTES and (more := await stream.receive_some(1)):
                read += more
        except trio.BrokenResourceError:
            return ""
    return read.partition(b"\n")[0].decode("ascii", "replace") if b"\n" in read else ""

"""Tells callbacks which sockets can be read or written.

One trio task drives it. A task for each connection costs a switch of about 20 µs at each event, and trio arms its epoll
anew for each wait (10 µs more); a chunk of a stream has 25 µs in all. So the sockets stand in an epoll set of their
own, which stays armed, and trio waits for that set alone: its descriptor is readable when any socket of it has news.

Rules: handlers are called one after the other and never wait; what they write is sent after the last of the round, or
once there is enough of it; a socket that a handler closes is really closed after that, so that its number cannot mean
another socket while events of the round are left; after `SLICE_S` the other tasks of the process get their turn. A
process that does little else may linger: once something came it waits here a little for more, and spares trio's round
(measured: a tenth of a streamed chunk's CPU).

Sending together is for the receivers' sake. Each sending wakes its receiver, and one that was awake already costs
nothing to wake: a busy gateway passed on a fifth more requests by it (measured, as all figures here, on two cores).
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

import trio

Handler = Callable[[int], None]
"""Gets which of the events below have come."""
MOST_UNSENT = 32
"""So many that have written in a round wait for its end."""

READ, WRITE = 0x001, 0x004
"""As epoll and poll number them (`linux/eventpoll.h`, `sys/poll.h`)."""
GONE = 0x2000 if hasattr(select, "epoll") else 0
"""The peer sends no more, though what it sent may still be unread. Elsewhere than on Linux, reading tells."""

SLICE_S = 0.01
LINGER_S = 0.008
"""For a process that serves users and nothing else."""
LOOK_EVERY_S = 0.002
"""Where there is no epoll: how often the sockets are looked at."""


class Poller:
    """The sockets of one process, and whom their news concern. `now` is what `clock` says, in this round."""

    def __init__(
        self,
        *,
        portable: bool = not hasattr(select, "epoll"),
        clock: Callable[[], float] = time.monotonic,
        linger_s: float = 0.0,
    ) -> None:
        self.clock = clock
        self._linger_s = 0.0 if portable else linger_s
        self.now = clock()
        self._set = select.poll() if portable else select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._closing: list[socket.socket] = []
        self._unsent: list[Callable[[], None]] = []
        self._in_round = False

    def watch(self, connection: socket.socket, events: int, handler: Handler) -> None:
        number = connection.fileno()
        self._set.register(number, events)
        self._handlers[number] = handler

    def change(self, connection: socket.socket, events: int) -> None:
        self._set.modify(connection.fileno(), events)

    def handle(self, connection: socket.socket, handler: Handler) -> None:
        """Call another handler from now on."""
        self._handlers[connection.fileno()] = handler

    def leave(self, connection: socket.socket) -> None:
        """No handler is called for it from now on."""
        number = connection.fileno()
        del self._handlers[number]
        self._set.unregister(number)

    def close(self, connection: socket.socket) -> None:
        """The same, and it is closed."""
        self.leave(connection)
        if self._in_round:
            self._closing.append(connection)
        else:
            connection.close()

    def send_soon(self, send: Callable[[], None]) -> None:
        """At the end of the round, or now between rounds."""
        if self._in_round:
            self._unsent.append(send)
        else:
            send()

    async def run(self) -> None:
        """Call handlers until cancelled."""
        descriptor = self._set.fileno() if isinstance(self._set, select.epoll) else None
        while True:
            if descriptor is None:
                await trio.sleep(LOOK_EVERY_S)
            else:
                await trio.lowlevel.wait_readable(descriptor)
            self._turn()

    def _turn(self) -> None:
        """All that is there, for at most a slice of time."""
        clock = self.clock
        begun = self.now = clock()
        poll, handlers = self._set.poll, self._handlers
        wait = 0.0
        while events := poll(wait):
            wait = self._linger_s
            self._in_round = True
            for number, event in events:
                handler = handlers.get(number)
                if handler is not None:
                    handler(event)
                    if len(self._unsent) >= MOST_UNSENT:
                        self._send()
            self._send()
            self._really_close()
            self.now = clock()
            if self.now - begun > SLICE_S:
                return

    def _send(self) -> None:
        while self._unsent:  # whoever finds its connection lost may have something to write elsewhere
            unsent, self._unsent = self._unsent, []
            for send in unsent:
                send()

    def _really_close(self) -> None:
        self._in_round = False
        while self._closing:
            self._closing.pop().close()

    def shut(self) -> None:
        """Watch nothing any more; whoever has a socket closes it."""
        for number in [*self._handlers]:
            self._set.unregister(number)
        self._handlers.clear()
        self._really_close()
        if isinstance(self._set, select.epoll):
            self._set.close()

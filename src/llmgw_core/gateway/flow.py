"""One connection's bytes, without waiting: what arrives is given on at once, what cannot be sent yet is kept.

Rules: what is kept is bounded by whoever writes, who is told (`is_full`) and stops reading elsewhere until `drained`;
each end of a connection is reported once, by `lost`; a deadline is looked at about once a second; what no code of ours
foresaw costs the one connection where it happened.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from math import inf

from llmgw_core.gateway.poller import READ, WRITE, Poller

PIECE_BYTES = 65536
"""Read at once."""
FULL_BYTES = 256 * 1024
"""With so much kept for a peer that does not read, its source is not read either."""

_log = logging.getLogger("llmgw.gateway")
_RESET = struct.pack("ii", 1, 0)


class Flow:
    """One connection. What its peer sends goes to `received`; subclasses say what that means."""

    __slots__ = (
        "_events",
        "_kept",
        "_reading",
        "_receive",
        "_send",
        "closing",
        "connection",
        "deadline",
        "kept_bytes",
        "moved_at",
        "poller",
    )

    _idle_events = 0
    """What to wait for while it is not read. With GONE, a peer that has gone is lost at once, whatever it sent."""

    def __init__(self, poller: Poller, connection: socket.socket, events: int) -> None:
        self.poller = poller
        self.connection: socket.socket | None = connection
        self.deadline = inf
        self.kept_bytes = 0
        self.moved_at = 0.0
        """When its peer last took something of what is kept."""
        self.closing = False
        """Whether it is closed as soon as all is sent."""
        self._receive: Callable[[int], bytes] = connection.recv
        self._send: Callable[[bytes | bytearray | memoryview], int] = connection.send
        self._kept: deque[bytes | memoryview] | None = None
        self._events = events
        self._reading = True
        poller.watch(connection, events, self._ready)

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is no more; called once."""

    def drained(self) -> None:
        """All that was kept is sent."""

    def ended(self) -> None:
        """The peer sends no more."""
        self.close()

    def unsendable(self) -> None:
        """The peer takes no more."""
        self.close()

    def expired(self) -> None:
        """The deadline has passed."""
        self.close()

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    @property
    def is_full(self) -> bool:
        return self.kept_bytes > FULL_BYTES

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or keep."""
        if self.connection is None:
            return
        if self._kept:
            self._keep(data)
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.unsendable()
            return
        if sent < len(data):
            self._keep(memoryview(data)[sent:])
            self._expect()

    def close_when_sent(self) -> None:
        if self._kept:
            self.closing = True
        else:
            self.close()

    def close(self) -> None:
        connection = self.connection
        if connection is None:
            return
        self.connection = None
        self._kept = None
        self.kept_bytes = 0
        self.deadline = inf
        self.poller.close(connection)
        self.lost()

    def reset(self) -> None:
        """Close so that the peer cannot take it for an end."""
        if self.connection is not None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close()

    def read_on(self, wanted: bool) -> None:
        """Whether to read, or to leave what comes in the kernel, where the peer has to wait."""
        if wanted is not self._reading and self.connection is not None:
            self._reading = wanted
            self._expect()

    def _drop(self) -> None:
        """Send nothing of what is kept."""
        self._kept = None
        self.kept_bytes = 0
        self._expect()

    def _keep(self, data: bytes | bytearray | memoryview) -> None:
        if self._kept is None:
            self._kept = deque()
            self.moved_at = self.poller.now
        # What the caller may change is copied; the rest of a large body is not.
        self._kept.append(bytes(data) if isinstance(data, bytearray) else data)
        self.kept_bytes += len(data)

    def _expect(self) -> None:
        events = self._idle_events | (READ if self._reading else 0) | (WRITE if self._kept else 0)
        if events != self._events and self.connection is not None:
            self._events = events
            self.poller.change(self.connection, events)

    def _ready(self, event: int) -> None:
        try:
            if event & WRITE:
                self._flush()
            if self.connection is None or not event & ~WRITE:
                return
            if not self._reading and self._idle_events:
                self.close()
                return
            # Where it is not to be read, the peer has gone altogether, and what it left is bounded by the kernel.
            try:
                data = self._receive(PIECE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            if data:
                self.received(data)
            else:
                self.ended()
        except Exception:
            _log.exception("a fault of the gateway's own; one connection is given up")
            self.close()

    def _flush(self) -> None:
        kept = self._kept
        while kept and self.connection is not None:
            piece = kept[0]
            try:
                sent = self._send(piece)
            except BlockingIOError:
                return
            except OSError:
                self.unsendable()
                return
            self.kept_bytes -= sent
            self.moved_at = self.poller.now
            if sent < len(piece):
                kept[0] = memoryview(piece)[sent:]
                return
            kept.popleft()
        self._kept = None
        if self.closing:
            self.close()
        elif self.connection is not None:
            self._expect()
            self.drained()

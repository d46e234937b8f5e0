"""One connection's bytes, without waiting: what arrives is given on at once, what cannot be sent yet is kept.

Rules: what is kept is bounded by whoever writes, who is told (`is_full`) and stops reading elsewhere until `drained`;
each end of a connection is reported once, by `lost`; a deadline is looked at about once a second; what no code of ours
foresaw costs the one connection where it happened.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable
from math import inf

from llmgw_core.gateway.poller import READ, WRITE, Poller

PIECE_BYTES = 65536
"""Read at once."""
FULL_BYTES = 256 * 1024
"""With so much kept for a peer that does not read, its source is not read either."""

_log = logging.getLogger("llmgw.gateway")
_RESET = struct.pack("ii", 1, 0)
_PROBES = 3


def notice_loss(connection: socket.socket, within_s: float, *, unread: bool) -> None:
    """Have the kernel end a connection whose peer's machine has gone without a word (power, cable).

    It asks while nothing is under way (TCP_KEEPIDLE and the like, `man 7 tcp`). `unread`: it gives up what the peer
    does not take within that time, too, where else it sends again for a quarter of an hour (TCP_USER_TIMEOUT).
    """
    probe_s = max(1, round(within_s / (2 * _PROBES)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": _PROBES * probe_s, "TCP_KEEPINTVL": probe_s, "TCP_KEEPCNT": _PROBES}
    if unread:
        wanted["TCP_USER_TIMEOUT"] = round(within_s * 1000)
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # not every system has each
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


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
        self._kept: list[bytes | memoryview] | None = None
        self._events = events
        self._reading = True
        poller.watch(connection, events, self._ready)

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is no more; called once."""

    def drained(self) -> None:
        """All is sent of what could not be sent at once, or was so much that others were to wait."""

    def ended(self) -> None:
        """The peer sends no more."""
        self.close_now()

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
        """Send with what others write in this round, and keep what cannot be sent then."""
        if self.connection is None or not data:
            return
        is_first = not self._kept
        self._keep(data)
        if is_first:
            self.poller.send_soon(self._send_kept)

    def close_when_sent(self) -> None:
        self.closing = True
        if self._kept:
            self.flush()
        else:
            self.close()

    def close_now(self) -> None:
        """What the peer does not take at once is lost."""
        self.closing = True  # so that nobody takes its being sent for room for more
        self.flush()
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
            self.close_now()

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
        # What the caller may change is copied; the rest of a large body is not.
        piece = bytes(data) if isinstance(data, bytearray) else data
        if self._kept is None:
            self._kept = [piece]
            self.moved_at = self.poller.now
        else:
            self._kept.append(piece)
        self.kept_bytes += len(piece)

    def _expect(self) -> None:
        events = self._idle_events | (READ if self._reading else 0) | (WRITE if self._kept else 0)
        if events != self._events and self.connection is not None:
            self._events = events
            self.poller.change(self.connection, events)

    def _ready(self, event: int) -> None:
        try:
            if event & WRITE:
                self.flush()
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
            self._give_up()

    def expire(self) -> None:
        """Do what `expired` says."""
        try:
            self.expired()
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """Within the handling of an exception."""
        _log.exception("a fault of the gateway's own; one connection is given up")
        self.close_anyhow()

    def close_anyhow(self) -> None:
        """Whoever hears of its end may meet a fault too."""
        try:
            self.close()
        except Exception:
            _log.exception("a fault of the gateway's own, at a connection's end")

    def _send_kept(self) -> None:
        """What was written in a round, after it."""
        try:
            self.flush()
        except Exception:
            self._give_up()

    def flush(self) -> None:
        """Send what is kept, as far as the peer takes it."""
        kept = self._kept
        if not kept:
            self._expect()
            return
        waited = self._events & WRITE or self.kept_bytes > FULL_BYTES
        if len(kept) > 1 and self.kept_bytes <= 2 * FULL_BYTES:
            kept[:] = [b"".join(kept)]  # once sent is cheaper than copied
        while kept and self.connection is not None:
            piece = kept[0]
            try:
                sent = self._send(piece)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.unsendable()
                return
            self.kept_bytes -= sent
            if sent < len(piece):
                if sent:
                    self.moved_at = self.poller.now
                    kept[0] = memoryview(piece)[sent:]
                self._expect()
                return
            del kept[0]
        self._kept = None
        if self.closing:
            self.close()
        elif waited and self.connection is not None:
            self._expect()
            self.drained()

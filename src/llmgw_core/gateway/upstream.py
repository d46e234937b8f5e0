"""One connection to an engine, and the answers that come on it.

    state       what happens                               next
    ---------   ----------------------------------------   -------------------------------
    CONNECTING  the kernel says connected, or refused      WAITING, or lost
    WAITING     the request goes out; nothing has come     HEAD at the first byte, or lost
    HEAD        the head of the answer comes               BODY, or nonsense, or lost
    BODY        bytes go to the client as they come        IDLE at the end, or lost
    IDLE        nothing                                    WAITING; any byte, or its end: closed

Rules: httptools says where an answer ends, and its bytes pass as they came; a byte before its begin or after its end is
nonsense, an empty line too, which httptools passes over; a connection is used again only when both the request and the
answer are whole and the engine keeps it; it is idle for no longer than `IDLE_S`, as an engine that closes it at the
same moment would lose a request (uvicorn closes after 5 s).
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

import httptools

from llmgw_core.gateway.flow import Flow, notice_loss
from llmgw_core.gateway.poller import READ, WRITE, Poller
from llmgw_core.gateway.replica import ServedReplica
from llmgw_core.model.route import Target

if TYPE_CHECKING:
    from llmgw_core.gateway.exchange import Exchange

IDLE_S = 3.0
BODILESS = (204, 304)
"""Answers that never have a body."""
HEAD_BYTES = 64 * 1024
_TOGETHER_BYTES = 65536
"""A body up to this goes out in one piece with its head."""
_HEAD_BEGIN, _HEAD_END = b"HTTP/", b"\r\n\r\n"
_LINE_ENDS = (b"\n", b"\r")
_NO_STATUS = 1000
_LAST_STATUS = 599


def open_connection(target: Target, silent_s: float) -> socket.socket:
    """One that comes about or fails later; raises `OSError` where that is known at once."""
    family = socket.AF_INET6 if ":" in target.address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_loss(connection, silent_s, unread=True)
        failure = connection.connect_ex((target.address, target.port))
        if failure not in (0, errno.EINPROGRESS):
            raise OSError(failure, "no connection")
    except OSError:
        connection.close()
        raise
    return connection


class State(IntEnum):
    CONNECTING = 0
    WAITING = 1
    HEAD = 2
    BODY = 3
    IDLE = 4


_BODY = State.BODY


class Upstream(Flow):
    __slots__ = (
        "_begun",
        "_complete",
        "_head",
        "_informed",
        "_is_kept",
        "_parser",
        "_surplus",
        "exchange",
        "fields",
        "is_reused",
        "reason",
        "replica",
        "state",
        "status",
    )

    def __init__(self, poller: Poller, connection: socket.socket, replica: ServedReplica) -> None:
        super().__init__(poller, connection, READ | WRITE)
        poller.handle(connection, self._connected)
        self.replica = replica
        self.exchange: Exchange | None = None
        self._begun: Exchange | None = None
        """The one that was begun here last, though it may have let go since."""
        self.state = State.CONNECTING
        self.is_reused = False
        self.status = 0
        self.reason = self._head = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self._complete = self._surplus = self._is_kept = False
        self._informed = 0
        self._parser = httptools.HttpResponseParser(self)

    def start(self, exchange: Exchange, head: bytes, body: bytes | bytearray) -> None:
        """Send a request, once connected."""
        self.exchange = self._begun = exchange
        if self.state is State.CONNECTING:
            self._keep(head)
            if body:
                self._keep(memoryview(body))
            return
        self.is_reused = True
        self.state = State.WAITING
        self.status = self._informed = 0
        self.reason = self._head = b""
        self.fields = []
        self._complete = False
        if len(body) <= _TOGETHER_BYTES:
            self.write(head + body)
        else:
            self.write(head)
            self.write(memoryview(body))

    def release(self) -> None:
        """The exchange is over, and so is the connection, unless it can be used again."""
        self.exchange = self._begun = None
        whole = self._complete and not self._surplus and not self.kept_bytes
        if whole and self.is_open and self.replica.is_routed and self._is_kept:
            self.state = State.IDLE
            self.deadline = self.poller.now + IDLE_S
            self.read_on(True)
            self.replica.idle.append(self)
        else:
            self.close()

    def is_between_chunks(self) -> bool:
        """Whether a chunked answer could be ended here. The parser can be used no more."""
        if self._complete:
            return False
        with suppress(httptools.HttpParserError):
            self._parser.feed_data(b"0\r\n\r\n")
        return self._complete

    # What Flow calls.

    def _connected(self, _: int) -> None:
        try:
            self._begin()
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        super()._give_up()
        exchange = self._begun
        if exchange is not None and exchange.client.exchange is exchange and exchange.upstream is None:
            exchange.client.close_anyhow()  # nobody works on it any more

    def _begin(self) -> None:
        connection = self.connection
        if connection is None:
            return
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()
            return
        self.poller.handle(connection, self._ready)
        self.state = State.WAITING
        if self.exchange is not None:
            self.exchange.connected()
        self.flush()

    def unsendable(self) -> None:
        # An engine that refuses a request before it has read it all has answered: that may still be there to read.
        self._drop()

    def received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            exchange.fail("nonsense", f"its answer is no HTTP: {error}")
            return
        if self._surplus:
            exchange.fail("nonsense", "bytes follow the end of its answer")
        elif self.state is _BODY:
            exchange.relay(data)
        else:
            self._receive_head(exchange, data)
        if self._complete and self.exchange is exchange:
            if data.endswith(_LINE_ENDS) and not self._ends_right(exchange):
                exchange.fail("nonsense", "an empty line follows the end of its answer")
            else:
                exchange.complete()

    def _ends_right(self, exchange: Exchange) -> bool:
        if exchange.is_chunked:
            return exchange.tail[-5:-4] not in (b"\r", b"\n")
        if self.status in BODILESS:
            return not exchange.sent_bytes
        return exchange.length == exchange.sent_bytes

    def _receive_head(self, exchange: Exchange, data: bytes) -> None:
        self.state = State.HEAD
        self._head += data
        if not self.status:
            self._check_head(exchange, len(self._head))
            return
        end = 0
        for _ in range(self._informed + 1):
            if not self._head.startswith(_HEAD_BEGIN, end) or self.status > _LAST_STATUS:
                exchange.fail("nonsense", "its answer is no HTTP: an empty line before it, or no status")
                return
            end = self._head.find(_HEAD_END, end) + len(_HEAD_END)
        if not self._check_head(exchange, end):
            return
        rest, self._head = self._head[end:], b""
        self.state = State.BODY
        fields, self.fields = self.fields, []
        exchange.answer(self.status, self.reason, fields, rest)

    def _check_head(self, exchange: Exchange, size: int) -> bool:
        if size > HEAD_BYTES:
            exchange.fail("nonsense", f"the head of its answer has over {HEAD_BYTES // 1024} KiB")
        return size <= HEAD_BYTES

    def ended(self) -> None:
        exchange = self.exchange
        if exchange is not None and self.state is State.BODY and exchange.ends_with_connection:
            exchange.complete()
        self.close()

    def expired(self) -> None:
        if self.exchange is None:
            self.close()
        else:
            self.exchange.expire()

    def lost(self) -> None:
        if self.exchange is not None:
            self.exchange.lose()
        elif self.state is State.IDLE:
            with suppress(ValueError):
                self.replica.idle.remove(self)

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._surplus = self._complete

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._informed += 1
            self.fields = []
            self.reason = b""
        else:
            self.status = status if status >= 200 else _NO_STATUS
            self._is_kept = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        # What an engine says before its answer is no answer.
        self._complete = self.status > 0

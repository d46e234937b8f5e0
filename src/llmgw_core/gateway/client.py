"""One connection of a user: requests in, answers out, in their order.

    the connection                                it is closed after
    -------------------------------------------   --------------------------------------------------
    waits for a request                           `idle_s`
    has sent a part of one                        `head_s`, and one second more for each 16 KiB of it
    gets an answer                                never, as long as it takes some 64 KiB of it in `STUCK_S`
    was refused within a request, or has sent     `LINGER_S` in which nothing came, once the last answer is
    more after the last one that it may send      sent, or `LONGEST_LINGER_S`; what comes is passed over

Rules: one request is worked on at a time, and while one waits behind it, nothing more is read; a client that sends no
more (half closed too) has left, whatever is being done for it.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from llmgw_core.gateway.answer import JSON, Refusal, render_answer
from llmgw_core.gateway.flow import Flow
from llmgw_core.gateway.poller import GONE, READ
from llmgw_core.gateway.request import Judge, Request, RequestReader

if TYPE_CHECKING:
    from llmgw_core.gateway.exchange import Exchange
    from llmgw_core.gateway.worker import Worker

LINGER_S, LONGEST_LINGER_S = 2.0, 30.0
STUCK_S = 60.0
SLOWEST_BYTES_S = 16384
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Client(Flow):
    __slots__ = ("_going_on", "_lingering", "_reader", "_since", "_taken_bytes", "address", "exchange", "worker")

    _idle_events = GONE

    def __init__(self, worker: Worker, connection: socket.socket, address: str, judge: Judge | None = None) -> None:
        """`judge`: another than the worker's own."""
        super().__init__(worker.poller, connection, READ | GONE)
        self.worker = worker
        self.address = address
        self.exchange: Exchange | None = None
        self.deadline = self.poller.now + worker.settings.head_s
        self._reader = RequestReader(worker.settings.body_bytes, judge or worker.judge)
        self._going_on = self._lingering = False
        self._since = self.poller.now
        self._taken_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Of bodies of requests."""
        reader = self._reader
        held = sum(len(each.body) for each in reader.whole)
        held += len(reader.current.body) if reader.current is not None else 0
        return held + (len(self.exchange.request.body) if self.exchange is not None else 0)

    @property
    def is_busy(self) -> bool:
        """Whether a request comes, an answer is not yet given, or it is not yet taken."""
        return self.exchange is not None or bool(self.kept_bytes) or self._reader.current is not None

    def cut(self) -> None:
        """The gateway stops now."""
        if self.exchange is not None:
            self.exchange.cut()

    def stop(self) -> None:
        """The gateway stops: idle connections are closed, the others after their answer."""
        if self.exchange is None and self._reader.current is None and not self._lingering:
            self.close_when_sent()

    def stays(self, request: Request) -> bool:
        """Whether the connection is kept after that request's answer."""
        return request.keep_alive and bool(request.minor) and not self.worker.is_stopping

    def received(self, data: bytes) -> None:
        if self._lingering:
            if not self.kept_bytes:
                self.deadline = min(self._since + LONGEST_LINGER_S, self.poller.now + LINGER_S)
            return
        if self._reader.current is None:
            self._since = self.poller.now
        self._taken_bytes += len(data)
        self._reader.feed(data)
        self._go_on()

    def _go_on(self) -> None:
        """Work on what is there, as far as it goes."""
        if self._going_on:
            return
        self._going_on = True
        try:
            while self.exchange is None and self._takes_requests and not self.is_full:
                if self._reader.whole:
                    self.worker.serve(self, self._reader.whole.pop(0))
                elif self._reader.refusal is not None:
                    self._refuse_for_good(self._reader.refusal)
                    return
                else:
                    break
        finally:
            self._going_on = False
        self._wait()

    @property
    def _takes_requests(self) -> bool:
        return self.connection is not None and not (self.closing or self._lingering)

    def _wait(self) -> None:
        reader = self._reader
        self.read_on(self._lingering or not (reader.whole or reader.refusal))
        if self.exchange is not None or not self._takes_requests:
            return
        settings, partial = self.worker.settings, reader.current
        if partial is None:
            self._taken_bytes = 0
            self.deadline = self.poller.now + settings.idle_s
            if self.worker.is_stopping:
                self.close_when_sent()
            return
        self.deadline = self._since + settings.head_s + self._taken_bytes / SLOWEST_BYTES_S
        if reader.in_body and partial.expects_continue and partial.minor:
            partial.expects_continue = False
            self.write(_CONTINUE)

    def begin(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.deadline = inf
        exchange.begin()

    def finished(self, *, stays: bool) -> None:
        """An answer is whole."""
        self.exchange = None
        self._since = self.poller.now
        reader = self._reader
        if stays:
            self._go_on()
        elif reader.whole or reader.current is not None or reader.refusal is not None:
            self._linger()
        else:
            self.close_when_sent()

    def reply(self, status: int, body: bytes, request: Request, kind: str = JSON) -> None:
        """An answer of the gateway's own."""
        stays = self.stays(request)
        answer = render_answer(status, body, request.request_id, close=not stays, kind=kind)
        self._write_own(answer, body, request)
        self.finished(stays=stays)

    def refuse(self, refusal: Refusal, request: Request) -> None:
        stays = self.stays(request)
        body, fields = refusal.body, refusal.fields
        answer = render_answer(refusal.status, body, request.request_id, close=not stays, fields=fields)
        self._write_own(answer, body, request)
        self.finished(stays=stays)

    def _write_own(self, answer: bytes, body: bytes, request: Request) -> None:
        self.write(answer[: len(answer) - len(body)] if request.method == b"HEAD" else answer)

    def _refuse_for_good(self, refusal: Refusal) -> None:
        request = self._reader.refused or self._reader.current or Request()
        self.worker.identify(request)
        self.worker.books.enter_refusal(self, refusal, request)
        body, fields = refusal.body, refusal.fields
        answer = render_answer(refusal.status, body, request.request_id, close=True, fields=fields)
        self._write_own(answer, body, request)
        self._linger()

    def _linger(self) -> None:
        """Close when all is sent and nothing more comes.

        Closed at once, with bytes of the client unread, the kernel would reset, and the answer could be lost.
        """
        if self.connection is None:
            return
        self._lingering = True
        self.deadline = inf
        self.read_on(True)
        self.flush()
        if not self.kept_bytes:
            self.drained()

    def break_off(self, *, visibly: bool) -> None:
        """The answer ends here, and is not whole. `visibly`: its end was announced, so that a mere end shows it."""
        self.exchange = None
        if visibly:
            self.close_when_sent()
        else:
            self.reset()

    def drained(self) -> None:
        if self._lingering:
            self._since = self.poller.now
            self.deadline = self._since + LINGER_S
            with suppress(OSError):
                if self.connection is not None:
                    self.connection.shutdown(socket.SHUT_WR)
        elif self.exchange is not None:
            self.exchange.client_drained()
        else:
            self._go_on()

    def expired(self) -> None:
        exchange = self.exchange
        if exchange is not None:
            self.deadline = inf
            exchange.waited_in_vain()
        elif self.kept_bytes:
            self.deadline = self.poller.now + STUCK_S  # it still takes its last answer, or is found stuck
        elif self._reader.current is not None and not self._lingering:
            self._refuse_for_good(Refusal(408, "the request did not come in time", "request_timeout"))
        else:
            self.close()

    def lost(self) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_left()

"""HTTP/1.1 on a trio stream: one connection, its requests one after another.

A request whose client leaves is cancelled at any point. On shutdown, a connection that waits for a request ends at
once, and one with a request in flight after its answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from http import HTTPStatus

import h11
import trio
from attrs import define, field, frozen

from llmgw_engine_sim.answers import Refused

_READ_BYTES = 65536
_BODY_BYTES = 32 * 1024 * 1024
_HEAD_BYTES = 64 * 1024
_BODY_S = 60.0
_IDLE_S = 5.0
"""As uvicorn: an idle connection is closed after 5 s."""

JSON = "application/json"
EVENTS = "text/event-stream"


@frozen
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@frozen
class Response:
    status: int
    body: bytes | AsyncGenerator[bytes, None]
    content_type: str = JSON


Handler = Callable[[Request], Awaitable[Response]]
Answered = Callable[[Request, Response], None]
"""Called when an answer has been sent to its end."""


class _Left(Exception):
    """The client has closed its side, or what it says is no HTTP."""


@define
class Shutdown:
    """Whether the server is ending, and the waits that this ends."""

    serving: bool = False
    """Whether there may be requests whose end is worth waiting for."""
    _asked: trio.Event = field(factory=trio.Event)
    _waits: set[trio.CancelScope] = field(factory=set)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    async def wait(self) -> None:
        await self._asked.wait()

    def ask(self) -> None:
        self._asked.set()
        for scope in self._waits:
            scope.cancel()

    @contextmanager
    def ends_wait(self, timeout_s: float) -> Iterator[None]:
        with trio.move_on_after(timeout_s) as scope:
            self._waits.add(scope)
            try:
                if self.asked:
                    scope.cancel()
                yield
            finally:
                self._waits.discard(scope)


async def serve_connection(stream: trio.SocketStream, handler: Handler, answered: Answered, shutdown: Shutdown) -> None:
    async with stream:
        try:
            connection = _Connection(stream, handler, answered, shutdown)
            while await connection.serve_request():
                pass
        except (_Left, trio.BrokenResourceError, trio.TooSlowError):
            return


class _Connection:
    def __init__(self, stream: trio.SocketStream, handler: Handler, answered: Answered, shutdown: Shutdown) -> None:
        self._stream = stream
        self._handler = handler
        self._answered = answered
        self._shutdown = shutdown
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    async def serve_request(self) -> bool:
        """Whether there may be another request on this connection."""
        try:
            head: h11.Request | None = None
            with self._shutdown.ends_wait(_IDLE_S):
                head = await self._receive_head()
            if head is None:
                return False
            with trio.fail_after(_BODY_S):
                request = await self._receive_body(head)
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint, str(error))
            return False
        if request is None:
            await self._refuse(413, f"the body is larger than {_BODY_BYTES} bytes")
            return False
        await self._answer(request)
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE or self._shutdown.asked:
            return False
        self._http.start_next_cycle()
        return True

    async def _receive_head(self) -> h11.Request | None:
        event = await self._next_event()
        return event if isinstance(event, h11.Request) else None

    async def _receive_body(self, head: h11.Request) -> Request | None:
        """`None`: it is too large."""
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            if len(body) > _BODY_BYTES:
                return None
        if not isinstance(event, h11.EndOfMessage):
            raise _Left
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        path = head.target.decode("ascii").partition("?")[0]
        return Request(head.method.decode("ascii"), path, headers, bytes(body))

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(_READ_BYTES))
        return event

    async def _answer(self, request: Request) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_left, nursery.cancel_scope)
            with suppress(trio.BrokenResourceError):
                response = await self._handler(request)
                await self._send_response(response, bodiless=request.method == "HEAD")
                self._answered(request, response)
            nursery.cancel_scope.cancel()

    async def _cancel_when_left(self, scope: trio.CancelScope) -> None:
        """Reads ahead, so that a client that leaves is noticed; a next request that comes early is kept."""
        try:
            while data := await self._stream.receive_some(_READ_BYTES):
                self._http.receive_data(data)
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            pass
        scope.cancel()

    async def _send_response(self, response: Response, bodiless: bool) -> None:
        headers = [("content-type", response.content_type)]
        if isinstance(response.body, bytes):
            headers.append(("content-length", str(len(response.body))))
        if self._shutdown.asked:
            headers.append(("connection", "close"))
        await self._send_head(response.status, headers)
        if isinstance(response.body, bytes):
            await self._send(h11.Data(data=b"" if bodiless else response.body))
        else:
            async with aclosing(response.body) as parts:
                async for part in parts:
                    await self._send(h11.Data(data=part))
        await self._send(h11.EndOfMessage())

    async def _send_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        await self._send(h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase))

    async def _send(self, event: h11.Event) -> None:
        """Without a checkpoint where there is nothing to send: a client that leaves with its answer had it."""
        if data := self._http.send(event):
            await self._stream.send_all(data)

    async def _refuse(self, status: int, message: str) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = Refused(status, message).body
        headers = [("content-type", JSON), ("content-length", str(len(body))), ("connection", "close")]
        await self._send_head(status, headers)
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

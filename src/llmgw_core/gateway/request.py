"""Reads requests of one connection, and refuses what two readers could understand differently.

In: bytes as they come.  Out: whole requests in their order, and at most one `Refusal`, after which nothing is read.
httptools (llhttp, strict) reads; on top of it stand these rules, each an answer to a way of smuggling:

    refused                                                     with
    ---------------------------------------------------------   ----
    two lengths, or a length and chunks; a bare CR; bad chunks  400
    a transfer coding other than `chunked`, or before HTTP/1.1  501
    no Host, or two (HTTP/1.1)                                  400
    a head over 64 KiB, or of more than 200 fields              431
    a body over the limit, as soon as that is known             413

Trailers are dropped. What is passed on has one length, and no field of this connection (RFC 9110, 7.6.1).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from time import monotonic

import httptools

from llmgw_core.gateway.answer import Refusal, malformed

HEAD_BYTES = 64 * 1024
MOST_FIELDS = 200
READ_ANYWAY_BYTES = 64 * 1024
"""The body of a request that is refused by its head is read up to this, and the connection goes on."""

_CONNECTION = frozenset({b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"http2-settings"})
_OWN = frozenset(
    {b"connection", b"host", b"content-length", b"transfer-encoding", b"expect", b"authorization", b"x-api-key"}
    | {b"x-request-id", b"content-type", b"x-session-id", b"proxy-authorization"}
)
_LOOKED_AT = _CONNECTION | _OWN
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


class Request:
    """One request; `body` is whole when it is among a reader's requests."""

    __slots__ = (
        "began",
        "body",
        "content_type",
        "expects_continue",
        "fields",
        "keep_alive",
        "key",
        "length",
        "method",
        "minor",
        "refusal",
        "request_id",
        "session",
        "target",
    )

    def __init__(self) -> None:
        self.began = monotonic()
        self.method = self.target = b""
        self.fields: list[bytes] = []
        """Lines that are passed on as they came."""
        self.body = bytearray()
        self.length: int | None = None
        """As stated; None where the body comes in chunks, or there is none."""
        self.content_type = self.session = self.key = self.request_id = b""
        self.expects_continue = False
        self.keep_alive = True
        self.minor = 1
        """Of HTTP's version."""
        self.refusal: Refusal | None = None
        """Why it is not served, though it could be read."""


class RequestReader:
    """`judge` says of each head whether the request is refused before its body is read."""

    __slots__ = (
        "_body_bytes",
        "_field_bytes",
        "_hosts",
        "_judge",
        "_named",
        "_parser",
        "_raw_bytes",
        "chunked",
        "current",
        "refusal",
        "whole",
    )

    def __init__(self, body_bytes: int, judge: Callable[[Request], Refusal | None]) -> None:
        self.whole: deque[Request] = deque()
        self.current: Request | None = None
        """The request of which a part is there."""
        self.refusal: Refusal | None = None
        self.chunked = False
        self._parser = httptools.HttpRequestParser(self)
        self._body_bytes = body_bytes
        self._judge = judge
        self._field_bytes = self._raw_bytes = self._hosts = 0
        self._named: frozenset[bytes] = frozenset()

    @property
    def in_body(self) -> bool:
        """Whether a head is complete and its body is not."""
        return self.current is not None and self._raw_bytes < 0

    def feed(self, data: bytes) -> None:
        if self.refusal is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Whoever offers another protocol is answered in this one, and the parser reads no further.
            self._refuse(malformed("data after an offer of another protocol"))
            if self.whole:
                self.whole[-1].keep_alive = False
        except httptools.HttpParserError as error:
            self._refuse(malformed(str(error)))
        if self._raw_bytes >= 0 and self.current is not None:
            self._raw_bytes += len(data)
            if self._raw_bytes > HEAD_BYTES:
                self._refuse(_too_many_fields())

    def _refuse(self, refusal: Refusal) -> None:
        if self.refusal is None:
            self.refusal = refusal

    # What httptools calls.

    def on_message_begin(self) -> None:
        self.current = Request()
        self.chunked = False
        self._field_bytes = self._raw_bytes = self._hosts = 0
        self._named = frozenset()

    def on_url(self, url: bytes) -> None:
        if self.current is not None:
            self.current.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self.current
        if request is None or self._raw_bytes < 0:
            return
        self._field_bytes += len(name) + len(value) + 4
        lowered = name.lower()
        if lowered in _LOOKED_AT:
            self._look_at(request, lowered, value)
        else:
            request.fields.append(b"%s: %s\r\n" % (name, value))

    def _look_at(self, request: Request, name: bytes, value: bytes) -> None:
        match name:
            case b"host":
                self._hosts += 1
            case b"content-length":
                if request.length is not None:
                    self._refuse(malformed("two lengths"))
                request.length = int(value)
            case b"transfer-encoding":
                if self.chunked or value.lower() != b"chunked":
                    self._refuse(Refusal(501, "no transfer coding but `chunked` is understood", "malformed_request"))
                self.chunked = True
            case b"connection":
                self._named |= {each.strip().lower() for each in value.split(b",")}
            case b"authorization" if value[:7].lower() == b"bearer ":
                request.key = value[7:].strip()
            case b"x-api-key" if not request.key:
                request.key = value.strip()
            case b"expect":
                request.expects_continue = value.lower() == b"100-continue"
            case b"x-request-id" if _REQUEST_ID.fullmatch(value):
                request.request_id = value
            case b"content-type" | b"x-session-id":
                if name == b"content-type":
                    request.content_type = value
                else:
                    request.session = value
                request.fields.append(b"%s: %s\r\n" % (name, value))
            case _:
                pass

    def on_headers_complete(self) -> None:
        request = self.current
        if request is None or self._raw_bytes < 0:
            return
        self._raw_bytes = -1
        parser = self._parser
        request.method = parser.get_method()
        request.minor = 0 if parser.get_http_version() == "1.0" else 1
        request.keep_alive = parser.should_keep_alive()
        for name in self._named - _LOOKED_AT:
            begin = name + b":"
            request.fields = [line for line in request.fields if not line[: len(begin)].lower() == begin]
        fault = self._fault(request)
        request.refusal = self._judge(request) if fault is None else None
        worth_reading = not (self.chunked or request.expects_continue) and (request.length or 0) <= READ_ANYWAY_BYTES
        if fault is not None:
            self._refuse(fault)
        elif request.refusal is not None and not worth_reading:
            self._refuse(request.refusal)

    def _fault(self, request: Request) -> Refusal | None:
        if self._field_bytes > HEAD_BYTES or len(request.fields) > MOST_FIELDS:
            return _too_many_fields()
        if self.chunked and (request.length is not None or not request.minor):
            return malformed("a length and chunks, or chunks before HTTP/1.1")
        if self._hosts > 1 or (request.minor and not self._hosts):
            return malformed("exactly one Host is needed")
        if request.length is not None and request.length > self._body_bytes:
            return _too_large(self._body_bytes)
        return None

    def on_body(self, data: bytes) -> None:
        request = self.current
        if request is None or self.refusal is not None:
            return
        request.body += data
        if len(request.body) > self._body_bytes:
            request.body = bytearray()
            self._refuse(_too_large(self._body_bytes))

    def on_message_complete(self) -> None:
        request, self.current = self.current, None
        self._raw_bytes = 0
        if request is not None and self.refusal is None and (not self.whole or self.whole[-1].keep_alive):
            self.whole.append(request)


def _too_many_fields() -> Refusal:
    return Refusal(
        431, f"the request's head has over {HEAD_BYTES // 1024} KiB, or over {MOST_FIELDS} fields", "head_too_large"
    )


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"the request's body has over {limit / 2**20:g} MiB", "request_too_large")

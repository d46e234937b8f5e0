"""Reads requests of one connection, and refuses what two readers could understand differently.

In: bytes as they come.  Out: whole requests in their order, and at most one `Refusal`, after which nothing is read.
httptools (llhttp, strict) reads; on top of it stand these rules, each an answer to a way of smuggling:

    refused                                                     with
    ---------------------------------------------------------   ----
    two lengths, or a length and chunks; a bare CR; bad chunks  400
    a transfer coding other than `chunked`, or before HTTP/1.1  501
    no Host, or two (HTTP/1.1)                                  400
    another version than HTTP/1.0 and HTTP/1.1                  505
    a head over 64 KiB, or of more than 200 fields              431
    a body over the limit, as soon as that is known             413

Trailers are dropped. An offer of another protocol (`Upgrade`, as Java's clients send it) is passed over. What is passed
on has one length, and no field of this connection (RFC 9110, 7.6.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic

import httptools

from llmgw_core.gateway.answer import Refusal, malformed
from llmgw_core.gateway.held_key import HeldKey

HEAD_BYTES = 64 * 1024
MOST_FIELDS = 200
FRAMING = 8
"""Bytes about a chunk for each byte of it: one that comes alone has about six."""
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
        "asked",
        "began",
        "body",
        "content_type",
        "expects_continue",
        "fields",
        "held_key",
        "keep_alive",
        "key",
        "key_id",
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
        """What is passed on as it came: of each field its name, a colon, its value and the end of the line."""
        self.body = bytearray()
        self.length: int | None = None
        """As stated; None where the body comes in chunks, or there is none."""
        self.content_type = self.session = self.key = self.request_id = b""
        self.asked = self.key_id = ""
        """The model that it names; whose key it has, whether or not that is let in."""
        self.held_key: HeldKey | None = None
        """Whose key it is, once that was looked at."""
        self.expects_continue = False
        self.keep_alive = True
        self.minor = 1
        """Of HTTP's version."""
        self.refusal: Refusal | None = None
        """Why it is not served, though it could be read."""


Judge = Callable[[Request], Refusal | None]


class RequestReader:
    """`judge` says of each head whether the request is refused before its body is read."""

    __slots__ = (
        "_body_bytes",
        "_fed_bytes",
        "_fields",
        "_grew",
        "_head_bytes",
        "_hosts",
        "_judge",
        "_named",
        "_offering",
        "_parser",
        "_resumed",
        "chunked",
        "current",
        "in_body",
        "refusal",
        "refused",
        "whole",
    )

    def __init__(self, body_bytes: int, judge: Judge) -> None:
        self.whole: list[Request] = []
        self.current: Request | None = None
        """The request of which a part is there."""
        self.refusal: Refusal | None = None
        self.refused: Request | None = None
        """Which one was refused, as far as it was read."""
        self.chunked = False
        self._parser = httptools.HttpRequestParser(self)
        self._body_bytes = body_bytes
        self._judge = judge
        self.in_body = self._grew = False
        """Whether a head is complete and its body is not."""
        self._head_bytes = self._fed_bytes = self._hosts = 0
        self._fields: list[tuple[bytes, bytes]] = []
        self._named: frozenset[bytes] = frozenset()
        self._offering: Request | None = None
        """Which one offers another protocol, and has a body."""
        self._resumed: Request | None = None
        """Whose body is read by a parser that did not read its head."""

    def feed(self, data: bytes) -> None:
        if self.refusal is not None:
            return
        self._fed_bytes = len(data)
        self._grew = False
        rest = data
        while rest:
            try:
                self._parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                self._pass_over_offer()
            except httptools.HttpParserCallbackError:
                raise  # our own fault
            except httptools.HttpParserError as error:
                self._refuse(malformed(str(error)))
                break
        if self.current is not None and not self._grew:
            # A head, or what stands between and after the chunks of a body.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES + FRAMING * len(self.current.body):
                self._refuse(_too_many_fields())

    def _refuse(self, refusal: Refusal) -> None:
        if self.refusal is None:
            self.refusal = refusal
            self.refused = self.current

    def _pass_over_offer(self) -> None:
        """The parser reads no further, and took no body. Another one does, as if nothing had been offered."""
        self._parser = httptools.HttpRequestParser(self)
        offering, self._offering = self._offering, None
        if offering is not None and self.whole and self.whole[-1] is offering:
            self._resumed = self.whole.pop()
            length = offering.length
            framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")

    # What httptools calls.

    def on_message_begin(self) -> None:
        self.current = Request()
        self.in_body = self.chunked = False
        self._head_bytes = self._hosts = 0
        self._fields = []
        self._named = frozenset()

    def on_url(self, url: bytes) -> None:
        if self.current is not None:
            self.current.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        request = self.current
        if request is None:
            return
        self.in_body = True
        if self._resumed is not None:
            self.current, self._resumed = self._resumed, None
            return
        parser, fields = self._parser, self._fields
        self._fields = []
        request.method = parser.get_method()
        version = parser.get_http_version()
        if version != "1.1":
            request.minor = 0
            if version != "1.0":
                self._refuse(Refusal(505, "HTTP/1.1 is spoken here", "malformed_request"))
        request.keep_alive = parser.should_keep_alive()
        passed = request.fields
        for name, value in fields:
            lowered = name.lower()
            if lowered in _LOOKED_AT:
                self._look_at(request, lowered, value)
            else:
                passed += (name, b": ", value, b"\r\n")
        if self._named:
            request.fields = _without(passed, self._named - _LOOKED_AT)
            if b"upgrade" in self._named and (request.length or self.chunked):
                self._offering = request
        fault = self._fault(request, fields)
        if fault is not None:
            self._refuse(fault)
            return
        request.refusal = self._judge(request)
        if request.refusal is not None and not self._is_worth_reading(request):
            self._refuse(request.refusal)

    def _is_worth_reading(self, request: Request) -> bool:
        return not (self.chunked or request.expects_continue) and (request.length or 0) <= READ_ANYWAY_BYTES

    def _look_at(self, request: Request, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            if request.length is not None:
                self._refuse(malformed("two lengths"))
            request.length = int(value)
        elif name == b"content-type":
            request.content_type = value
            request.fields += (b"content-type", b": ", value, b"\r\n")
        elif name == b"authorization":
            if value[:7].lower() == b"bearer ":
                request.key = value[7:].strip()
        elif name == b"connection":
            self._named = self._named.union(each.strip().lower() for each in value.split(b","))
        else:
            self._look_at_rare(request, name, value)

    def _look_at_rare(self, request: Request, name: bytes, value: bytes) -> None:
        if name == b"transfer-encoding":
            if self.chunked or value.lower() != b"chunked":
                self._refuse(Refusal(501, "no transfer coding but `chunked` is understood", "malformed_request"))
            self.chunked = True
        elif name == b"x-api-key":
            request.key = request.key or value.strip()
        elif name == b"expect":
            request.expects_continue = value.lower() == b"100-continue"
        elif name == b"x-request-id":
            request.request_id = value if _REQUEST_ID.fullmatch(value) else b""
        elif name == b"x-session-id":
            request.session = value
            request.fields += (b"x-session-id", b": ", value, b"\r\n")

    def _fault(self, request: Request, fields: list[tuple[bytes, bytes]]) -> Refusal | None:
        if len(fields) > MOST_FIELDS or self._is_head_large(fields):
            return _too_many_fields()
        if self.chunked and (request.length is not None or not request.minor):
            return malformed("a length and chunks, or chunks before HTTP/1.1")
        if self._hosts > 1 or (request.minor and not self._hosts):
            return malformed("exactly one Host is needed")
        if request.length is not None and request.length > self._body_bytes:
            return _too_large(self._body_bytes)
        return None

    def _is_head_large(self, fields: list[tuple[bytes, bytes]]) -> bool:
        if self._head_bytes + self._fed_bytes <= HEAD_BYTES:
            return False  # whatever else came with it
        return sum(len(name) + len(value) + 4 for name, value in fields) > HEAD_BYTES

    def on_body(self, data: bytes) -> None:
        request = self.current
        if request is None or self.refusal is not None:
            return
        request.body += data
        self._grew = True
        if len(request.body) > self._body_bytes:
            request.body = bytearray()
            self._refuse(_too_large(self._body_bytes))

    def on_message_complete(self) -> None:
        request, self.current = self.current, None
        self.in_body = False
        if request is not None and self.refusal is None and (not self.whole or self.whole[-1].keep_alive):
            self.whole.append(request)


def _without(passed: list[bytes], named: frozenset[bytes]) -> list[bytes]:
    fields = [passed[each : each + 4] for each in range(0, len(passed), 4)]
    return [piece for field in fields if field[0].lower() not in named for piece in field]


def _too_many_fields() -> Refusal:
    return Refusal(
        431, f"the request's head has over {HEAD_BYTES // 1024} KiB, or over {MOST_FIELDS} fields", "head_too_large"
    )


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"the request's body has over {limit / 2**20:g} MiB", "request_too_large")

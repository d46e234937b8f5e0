"""What engines and clients say to each other over HTTP, as bytes: the shortest that is right, unless told more."""

from __future__ import annotations

import json
from typing import Any

CHAT = "/v1/chat/completions"
EVENT_STREAM = "text/event-stream"


def split_head(head: bytes) -> tuple[str, tuple[tuple[str, str], ...]]:
    line, *lines = head.decode("latin-1").split("\r\n")
    return line, tuple((name, value) for name, _, value in (each.partition(": ") for each in lines))


# Engines.


def answer(body: bytes = b'{"ok":1}', status: str = "200 OK", *fields: str, kind: str = "application/json") -> bytes:
    head = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *fields]
    return "\r\n".join([*head, "", ""]).encode() + body


def stream_head(*fields: str, kind: str = EVENT_STREAM) -> bytes:
    head = ["HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked", *fields]
    return "\r\n".join([*head, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number: int, size: int = 0) -> bytes:
    return chunk(b'data: {"n":%d,"x":"%b"}\n\n' % (number, b"x" * size))


LAST_CHUNK = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
NO_MORE = b"0\r\n\r\n"


# Clients.


def wish(model: str = "m", **more: Any) -> bytes:
    return json.dumps({"model": model, **more}).encode()


def post(body: bytes | None = None, *fields: str, path: str = CHAT, version: str = "1.1") -> bytes:
    body = wish() if body is None else body
    head = [f"POST {path} HTTP/{version}", "host: gateway", f"content-length: {len(body)}", *fields]
    return "\r\n".join([*head, "", ""]).encode() + body


def get(path: str = "/v1/models", *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: gateway", *fields, "", ""]).encode()

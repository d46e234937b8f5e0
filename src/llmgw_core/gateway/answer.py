"""The gateway's own answers: errors and lists, as OpenAI's clients understand them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil

import msgspec
from attrs import frozen

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
JSON = "application/json"
encode_json = msgspec.json.Encoder().encode


@frozen
class Refusal:
    """Why a request is not served: OpenAI's error, with the status that makes its clients do the right thing."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    allow: str = ""
    """The methods that would do."""

    @property
    def body(self) -> bytes:
        kind = "server_error" if self.status >= 500 else _TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return encode_json({"error": error})

    @property
    def fields(self) -> dict[str, str]:
        fields = {}
        if self.retry_after_s is not None:
            fields["retry-after"] = str(max(1, ceil(self.retry_after_s)))
        if self.allow:
            fields["allow"] = self.allow
        if self.status == HTTPStatus.UNAUTHORIZED:
            fields["www-authenticate"] = "Bearer"
        return fields


def render_answer(
    status: int,
    body: bytes,
    request_id: bytes,
    *,
    close: bool,
    kind: str = JSON,
    fields: Mapping[str, str] | None = None,
) -> bytes:
    """A whole answer of HTTP/1.1."""
    head = [
        b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode()),
        b"content-type: %s\r\ncontent-length: %d\r\n" % (kind.encode(), len(body)),
        *(f"{name}: {text}\r\n".encode("latin-1", "replace") for name, text in (fields or {}).items()),
    ]
    if request_id:
        head.append(b"x-request-id: %s\r\n" % request_id)
    if close:
        head.append(b"connection: close\r\n")
    return b"".join([*head, b"\r\n", body])


def render_error_event(message: str) -> bytes:
    """An event of a stream that tells its client that the stream is broken."""
    error = {"message": message, "type": "server_error", "param": None, "code": "stream_broken"}
    return b"data: " + encode_json({"error": error}) + b"\n\n"


def no_such_model(name: str) -> Refusal:
    return Refusal(
        404, f"The model `{name[:200]}` does not exist, or this key may not use it.", "model_not_found", "model"
    )


def malformed(why: str) -> Refusal:
    return Refusal(400, f"this is no HTTP request that could be passed on: {why}", "malformed_request")

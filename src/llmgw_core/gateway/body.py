"""Which model a request's body names, without touching the body.

In: the body's bytes and its content type.  Out: a `Wish`.  Pure.
Rules: unknown fields are passed over unread; of a key that stands twice the last one counts, as for the engines' own
parsers; what names no model raises `BadBody` with a line for the user.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import multipart

from llmgw_core.model.route import Affinity

PREFIX_BYTES = 1024
"""So much of the beginning of a prompt decides where it goes."""


class BadBody(Exception):
    """A body that cannot be routed; the text is for the user, `param` names the field."""

    def __init__(self, said: str, param: str | None = "model") -> None:
        super().__init__(said)
        self.param = param


class _Named(msgspec.Struct):
    model: str


class _Prompted(msgspec.Struct):
    """What requests that should meet again have in common."""

    user: Any = None
    prompt_cache_key: Any = None
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_read_named = msgspec.json.Decoder(_Named).decode
_read_prompted = msgspec.json.Decoder(_Prompted).decode
_BOUNDARY = re.compile(rb'boundary="?([^";,]+)"?', re.IGNORECASE)
_MOST_FIELD_BYTES = 4096


def read_model(body: bytes | bytearray, content_type: bytes) -> str:
    """The `model` that the body names; raises `BadBody`."""
    if content_type[:10].lower() == b"multipart/":
        return _read_multipart(body, content_type)
    try:
        return _read_named(body).model
    except msgspec.ValidationError as error:
        raise BadBody(_explain(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadBody(f"the request's body is no JSON: {why}", None) from None


def _explain(said: str) -> str:
    if "missing required field" in said:
        return "the request's body names no `model`"
    if "$.model" in said:
        return f"`model` must be a text: {said.partition(' - ')[0]}"
    return f"the request's body must be a JSON object: {said}"


def _read_multipart(body: bytes | bytearray, content_type: bytes) -> str:
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadBody("the multi-part body has no boundary in its content-type", None)
    try:
        name = _find_field(body, found[1], "model")
        text = name.decode() if name is not None else ""
    except (multipart.MultipartError, UnicodeDecodeError, ValueError) as error:
        raise BadBody(f"the multi-part body cannot be read: {error}", None) from None
    if not text:
        raise BadBody("the multi-part body has no field `model`")
    return text


def _find_field(body: bytes | bytearray, boundary: bytes, wanted: str) -> bytes | None:
    parser = multipart.PushMultipartParser(boundary, content_length=len(body))
    value: bytearray | None = None
    for event in parser.parse(body):
        if isinstance(event, multipart.MultipartSegment):
            value = bytearray() if event.name == wanted and event.filename is None else None
        elif event is None and value is not None:
            return bytes(value)
        elif event is not None and value is not None and len(value) <= _MOST_FIELD_BYTES:
            value += event
    return None


def affinity_key(body: bytes | bytearray, affinity: Affinity, session: bytes) -> bytes:
    """What requests that should meet again share; empty: nothing is known, and any replica does.

    `session` is the header `x-session-id`, empty where there is none.
    """
    if affinity is Affinity.NONE or session:
        return session if affinity is Affinity.SESSION else b""
    try:
        prompted = _read_prompted(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    if affinity is Affinity.SESSION:
        said = prompted.prompt_cache_key or prompted.user
        return said.encode() if isinstance(said, str) else b""
    return bytes(prompted.messages or prompted.prompt or prompted.input)[:PREFIX_BYTES]


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NEXT = re.compile(rb'[{}\[\],:"]')


def rename_model(body: bytes | bytearray, content_type: bytes, old: str, new: str) -> bytes:
    """The body with the model that it names renamed, and every other byte as it was."""
    if content_type[:10].lower() == b"multipart/":
        return _rename_field(bytes(body), content_type, old.encode(), new.encode())
    return _rename_key(bytes(body), new)


def _rename_field(body: bytes, content_type: bytes, old: bytes, new: bytes) -> bytes:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return body
    header = rb"content-disposition:[^\r\n]*\bname=\"?model\"?[^\r\n]*(?:\r\n[^\r\n]+)*\r\n\r\n"
    field = re.compile(
        rb"(\r\n" + header + rb")" + re.escape(old) + rb"(?=\r\n--" + re.escape(boundary[1]) + rb")", re.I
    )
    return field.sub(lambda found: found[1] + new, body, count=1)


def _rename_key(body: bytes, name: str) -> bytes:
    new = msgspec.json.encode(name)
    made, copied, at, depth = [], 0, 0, 0
    key: bytes | None = None
    is_key = False
    while found := _NEXT.search(body, at):
        sign, at = found[0], found.end()
        if sign == b'"':
            text = _STRING.match(body, found.start())
            if text is None:
                break
            at = text.end()
            if depth == 1 and is_key:
                key = text[0]
            elif depth == 1 and key is not None and _is_model(key):
                made += [body[copied : found.start()], new]
                copied = at
            continue
        depth += (sign in b"{[") - (sign in b"}]")
        is_key = depth == 1 and sign in b"{,"
        key = None if is_key else key
    return b"".join([*made, body[copied:]])


def _is_model(key: bytes) -> bool:
    return key == b'"model"' or (b"\\" in key and msgspec.json.decode(key) == "model")

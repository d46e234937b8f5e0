"""Which model a request's body names, without touching the body.

In: the body's bytes and its content type.  Out: a `Wish`.  Pure.
Rules: unknown fields are passed over unread; of a key that stands twice the last one counts, as for the engines' own
parsers; what names no model raises `BadBody` with a line for the user.
"""

from __future__ import annotations

import re
from itertools import islice
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
_BOUNDARY = re.compile(rb'\bboundary=(?:"([^"]+)"|([^";,\s]+))', re.IGNORECASE)
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
    boundary = _boundary(content_type)
    try:
        name = _find_field(body, boundary, "model")
        text = name.decode() if name is not None else ""
    except (multipart.MultipartError, UnicodeDecodeError, ValueError) as error:
        raise BadBody(f"the multi-part body cannot be read: {error}", None) from None
    if not text:
        raise BadBody("the multi-part body has no field `model`")
    return text


def _boundary(content_type: bytes) -> bytes:
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadBody("the multi-part body has no boundary in its content-type", None)
    return found[1] or found[2]


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


def rename_model(body: bytes | bytearray, content_type: bytes, old: str, new: str) -> bytes:
    """The body with the model that it names renamed, and every other byte as it was; raises `BadBody`."""
    if content_type[:10].lower() == b"multipart/":
        return _rename_field(bytes(body), content_type, old.encode(), new.encode())
    return _rename_key(bytes(body), old, new)


def _rename_field(body: bytes, content_type: bytes, old: bytes, new: bytes) -> bytes:
    boundary = _boundary(content_type)
    header = (
        rb"(?i:content-disposition):[^\r\n]*\b(?i:name)=(?:\"model\"|model(?=[;\r]))[^\r\n]*(?:\r\n[^\r\n]+)*\r\n\r\n"
    )
    field = re.compile(rb"(\r\n" + header + rb")" + re.escape(old) + rb"(?=\r\n--" + re.escape(boundary) + rb")")
    return field.sub(lambda found: found[1] + new, body, count=1)


_LETTERS = (rb"(?:m|\\u006[dD])", rb"(?:o|\\u006[fF])", rb"(?:d|\\u0064)", rb"(?:e|\\u0065)", rb"(?:l|\\u006[cC])")
_NAMING = re.compile(rb'"' + b"".join(_LETTERS) + rb'"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
_MOST_PLACES = 16


def _rename_key(body: bytes, old: str, new: str) -> bytes:
    """Which of the places that look like it names the model, a JSON reader says: it is much faster than a walk here."""
    made = msgspec.json.encode(new)
    found = (each.span(1) for each in _NAMING.finditer(body) if _names(each[1], old))
    places = list(islice(found, _MOST_PLACES + 1))
    for begin, end in reversed(places) if len(places) <= _MOST_PLACES else ():
        renamed = body[:begin] + made + body[end:]
        if _read_named(renamed).model == new:
            return renamed
    raise BadBody(f"the request's body has too many fields `model`; use the name {new} instead of {old}")


def _names(text: bytes, model: str) -> bool:
    try:
        return bool(msgspec.json.decode(text) == model)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False

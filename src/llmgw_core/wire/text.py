"""Messages as text, and back.

In: a message or a text.  Out: the other.  Rules: a text that is no message raises `Garbage`, whatever it is; a message
of an unknown kind is `Unknown`; unknown fields are passed over.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

from cattrs import Converter

from llmgw_core.errors import LlmgwError
from llmgw_core.wire.message import Message, Unknown

_KINDS: dict[str, type] = {each.__name__: each for each in get_args(Message)}
_SHOWN_CHARACTERS = 80


class Garbage(LlmgwError):
    """What arrived is no message."""


@cache
def _converter() -> Converter:
    return Converter(omit_if_default=True, detailed_validation=False)


def encode(message: Message) -> str:
    plain: dict[str, Any] = _converter().unstructure(message)
    return json.dumps({"kind": type(message).__name__, **plain}, separators=(",", ":"))


def decode(text: str | bytes) -> Message | Unknown:
    """The message in `text`; raises `Garbage`."""
    if isinstance(text, bytes):
        raise Garbage(f"{len(text)} bytes that are no text message")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Garbage(f"not JSON: {_shown(text)}") from error
    kind = parsed.get("kind") if isinstance(parsed, dict) else None
    if not isinstance(kind, str):
        raise Garbage(f"no message, for it has no kind: {_shown(text)}")
    if kind not in _KINDS:
        return Unknown(kind[:_SHOWN_CHARACTERS])
    try:
        message: Message = _converter().structure(parsed, _KINDS[kind])
    except Exception as error:
        raise Garbage(f"not a {kind}: {type(error).__name__}: {error}") from error
    return message


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS]) + ("…" if len(text) > _SHOWN_CHARACTERS else "")

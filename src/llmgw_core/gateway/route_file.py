"""The last table, on disk: by it a gateway serves before it has reached the control plane, or without.

Two lines: the table as it came on the link, and whose place on the board is which. The file is for its owner only,
since the engines' keys stand in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.place import Places
from llmgw_core.model.route import RouteTable
from llmgw_core.wire.message import Routes
from llmgw_core.wire.text import Garbage, decode, encode

ROUTE_FILE = "routes.json"


class BadRouteFile(LlmgwError):
    """It cannot be read, or is not what a gateway wrote."""


@frozen
class Routed:
    """A table, and the places of all that it names."""

    table: RouteTable
    places: Places


def render_routes(routed: Routed) -> bytes:
    return f"{encode(Routes(routed.table))}\n{json.dumps(attrs.asdict(routed.places))}\n".encode()


def parse_routes(text: bytes) -> Routed:
    """Raises `BadRouteFile`."""
    try:
        first, second = text.decode().split("\n")[:2]
        message = decode(first)
        if not isinstance(message, Routes):
            raise Garbage("not a table of routes")
        return Routed(message.table, Places(**{name: _placed(each) for name, each in json.loads(second).items()}))
    except (ValueError, TypeError, AttributeError, Garbage) as error:
        raise BadRouteFile(f"damaged: {error}") from error


def _placed(places: Any) -> dict[str, int]:
    if not all(type(place) is int and place >= 0 for place in places.values()):
        raise ValueError("a place that is no number")
    return dict(places)


def write_routes(path: Path, routed: Routed) -> None:
    """Whole or not at all; raises OSError."""
    beside = path.with_name(f"{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(render_routes(routed))
        file.flush()
        os.fsync(descriptor)
    os.replace(beside, path)


def read_routes(path: Path) -> Routed | None:
    """None where there is none; raises `BadRouteFile`."""
    try:
        return parse_routes(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadRouteFile(f"cannot be read: {error.strerror}") from error
    except BadRouteFile as error:
        raise BadRouteFile(f"{path}: {error}") from error

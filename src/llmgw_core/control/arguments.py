"""The arguments of an operator's question: plain JSON values, of which each is checked where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from llmgw_core.control.fleet import Node
from llmgw_core.control.plane import Plane
from llmgw_core.errors import LlmgwError

T = TypeVar("T")
Arguments = Mapping[str, Any]
_SHOWN_CHARACTERS = 80


class BadQuestion(LlmgwError):
    """A question that cannot be answered as it was asked."""


def argument(arguments: Arguments, name: str, kind: type[T], default: T) -> T:
    value = arguments.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise BadQuestion(f"{name}: expected {kind.__name__}, got {repr(value)[:_SHOWN_CHARACTERS]}")
    return value


def node_argument(plane: Plane, arguments: Arguments) -> Node:
    name = argument(arguments, "node", str, "")
    if name not in plane.fleet.nodes:
        shown = repr(name[:_SHOWN_CHARACTERS])
        raise BadQuestion(f"no node {shown} has ever been here; `llmgw ctl nodes` lists those that have")
    return plane.fleet.nodes[name]

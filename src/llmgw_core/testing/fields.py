"""The fields of a replica by name, whether one is set, and the same replica with another value of it.

Names are paths: `source`, `settings.dtype`, `settings.speculative.method`, `slot.listen.port` (all slots at once).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from llmgw_core.model.replica import (
    Endpoint,
    Hca,
    Parallel,
    ReplicaSpec,
    Secret,
    Settings,
    Slot,
    Speculative,
)

_PARTS: dict[str, type[attrs.AttrsInstance]] = {
    "rendezvous": Endpoint,
    "parallel": Parallel,
    "settings": Settings,
    "settings.speculative": Speculative,
    "slot": Slot,
    "slot.listen": Endpoint,
}
_NOT_LAUNCHED = {"id", "engine", "slots"}
"""Names for people and for llmgw; no engine is told of them."""


def field_names() -> tuple[str, ...]:
    """Every field that describes a launch."""
    top = [name for name in _names(ReplicaSpec) if name not in _NOT_LAUNCHED and name not in _PARTS]
    parts = [f"{part}.{name}" for part, kind in _PARTS.items() for name in _names(kind)]
    return (*top, *(name for name in parts if name not in _PARTS))


def _names(kind: type[attrs.AttrsInstance]) -> list[str]:
    return [field.name for field in attrs.fields(kind)]


def is_set(spec: ReplicaSpec, name: str) -> bool:
    """Whether the field is there, and is not what it is when nobody sets it."""
    try:
        owner, field = _owner(spec, name)
    except AttributeError:
        return False
    default = next(each for each in attrs.fields(type(owner)) if each.name == field).default
    value = getattr(owner, field)
    return value is True or (value is not None and value != default and value not in ((), "", {}))


def _owner(spec: ReplicaSpec, name: str) -> tuple[Any, str]:
    *path, field = name.split(".")
    owner: Any = spec
    for part in path:
        owner = owner.slots[0] if part == "slot" else getattr(owner, part)
    if owner is None:
        raise AttributeError(name)
    return owner, field


def variations(spec: ReplicaSpec, name: str) -> Iterator[Callable[[], ReplicaSpec]]:
    """Makers of the same replica with other values of one field; a maker raises where the value makes it impossible."""
    if name == "extra_args" or is_set(spec, name):
        _, field = _owner(spec, name)
        for change in _changes(field):
            yield lambda change=change: _changed(spec, name.split("."), change)  # type: ignore[misc]


def _changes(field: str) -> list[Callable[[Any], Any]]:
    if field in ("tensor", "pipeline", "data", "expert"):
        return [lambda value, size=size: size if size != value else size * 2 for size in (1, 2, 4, 8, 16)]  # type: ignore[misc]
    return [_other]


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2
        case str():
            return f"{value}x"
        case Secret():
            return Secret("another")
        case tuple():
            return tuple(_other(each) for each in value) or ("--another",)
        case Hca():
            return attrs.evolve(value, name=f"{value.name}x")
        case Mapping():
            return {**value, "ANOTHER": "1"}
    raise TypeError(f"no other value is known for {value!r}")


def _changed(value: Any, path: list[str], change: Callable[[Any], Any]) -> Any:
    head, *rest = path
    if head == "slot":
        return attrs.evolve(value, slots=tuple(_changed(slot, rest, change) for slot in value.slots))
    inner = getattr(value, head)
    return attrs.evolve(value, **{head: _changed(inner, rest, change) if rest else change(inner)})

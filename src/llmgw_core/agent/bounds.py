"""The most that an agent says of its node, whatever its programs print: a report must fit into one message.

In: facts.  Out: the same, cut where they are too long.  Pure.
Rule: what was cut is said, in the reason or the trouble of its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import attrs
from attrs import evolve

from llmgw_core.model.node import Fabric, NodeFacts

GPUS, PORTS, FABRICS, ADAPTERS, ENGINES, PLUGINS = 256, 256, 16, 64, 32, 64
OFFERS, BUSY_PORTS, STRAYS = 1024, 256, 64
SHORT, LONG = 120, 500
"""Characters of a text: of one of hundreds of things, and of any other."""
T = TypeVar("T")


def bound_facts(facts: NodeFacts) -> NodeFacts:
    gpus, more_gpus = _first(facts.gpus.gpus, GPUS)
    ports, more_ports = _first(facts.infiniband.ports, PORTS)
    fabrics, more_fabrics = _first(facts.fabrics, FABRICS)
    told_gpus = evolve(facts.gpus, gpus=(), reason=_said(facts.gpus.reason, more_gpus, "GPUs"))
    reason = _said(_said(facts.infiniband.reason, more_ports, "ports"), more_fabrics, "fabrics")
    rest = evolve(
        facts,
        gpus=told_gpus,
        infiniband=evolve(facts.infiniband, ports=(), reason=reason),
        fabrics=(),
        engines=facts.engines[:ENGINES],
        refused_plugins=facts.refused_plugins[:PLUGINS],
        offers=facts.offers[:OFFERS],
        busy_ports=facts.busy_ports[:BUSY_PORTS],
        strays=facts.strays[:STRAYS],
    )
    cut: NodeFacts = _cut(rest, LONG)
    return evolve(
        cut,
        gpus=evolve(cut.gpus, gpus=_cut(gpus, SHORT)),
        infiniband=evolve(cut.infiniband, ports=_cut(ports, SHORT)),
        fabrics=tuple(map(_bound_fabric, fabrics)),
    )


def _bound_fabric(fabric: Fabric) -> Fabric:
    hcas, more = _first(fabric.hcas, ADAPTERS)
    trouble = _cut(_said(fabric.trouble, more, "adapters"), LONG)
    return evolve(fabric, name=_cut(fabric.name, SHORT), hcas=_cut(hcas, SHORT), trouble=trouble)


def _first(things: Sequence[T], most: int) -> tuple[tuple[T, ...], int]:
    return tuple(things[:most]), max(0, len(things) - most)


def _said(reason: str, more: int, what: str) -> str:
    return "; ".join(filter(None, (f"{more} more {what} are not told" if more else "", reason)))


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[: longest - 1]}…"
    if isinstance(value, tuple):
        return tuple(_cut(each, longest) for each in value)
    if not attrs.has(type(value)):
        return value
    inner = {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
    changed = {name: after for name, each in inner.items() if (after := _cut(each, longest)) != each}
    return evolve(value, **changed) if changed else value

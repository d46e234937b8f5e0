"""What proves that a stated fabric is not one.

In: the ports by which nodes take part in fabrics.  Out: a `Refutation` for each proof, in stable order.  Pure.
Rules: one InfiniBand subnet gives a local id (LID) to one port and one prefix to all; so a LID on two ports, or two
prefixes that somebody set, refute it. An equal prefix proves nothing, the default one (`fe80::`) says nothing, zeros
are nothing. A port that two nodes report with one GUID is one port, and no proof. Ports that are down keep old LIDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from llmgw_core.model.node import IbPort, Refutation

DEFAULT_PREFIX = "fe80:0000:0000:0000"


@frozen
class FabricMember:
    """One node's ports on one fabric."""

    fabric: str
    node: str
    ports: tuple[IbPort, ...]


@frozen
class _Seen:
    node: str
    port: IbPort

    def __str__(self) -> str:
        return f"{self.node}'s {self.port.hca}"

    @property
    def order(self) -> tuple[str, str, int]:
        return self.node, self.port.hca.name, self.port.hca.port


def refuted(members: Sequence[FabricMember]) -> tuple[Refutation, ...]:
    """Every proof against a fabric; empty where nothing speaks against any of them."""
    of_fabric: dict[str, list[FabricMember]] = {}
    for member in members:
        of_fabric.setdefault(member.fabric, []).append(member)
    return tuple(found for name in sorted(of_fabric) for found in _refute(name, of_fabric[name]))


def _refute(fabric: str, members: Sequence[FabricMember]) -> Iterator[Refutation]:
    seen = sorted(
        {_Seen(member.node, port) for member in members for port in member.ports if _counts(port)},
        key=lambda each: each.order,
    )
    for lid, sharing in _by(seen, lambda each: each.port.lid):
        distinct = _distinct(sharing)
        if len(distinct) > 1:
            yield _refutation(fabric, distinct, f"port LID {lid:#x} is held by {_and(distinct)}")
    prefixes = [(prefix, those) for prefix, those in _by(seen, lambda each: each.port.subnet_prefix) if _is_set(prefix)]
    if len(prefixes) > 1:
        said = ", ".join(f"{prefix} ({_and(those)})" for prefix, those in prefixes)
        yield _refutation(
            fabric, [each for _, those in prefixes for each in those], f"its subnet prefixes differ: {said}"
        )


def _refutation(fabric: str, seen: Sequence[_Seen], why: str) -> Refutation:
    nodes = tuple(dict.fromkeys(sorted(each.node for each in seen)))
    return Refutation(fabric, nodes, f"{fabric} is not one fabric: {why}")


def _counts(port: IbPort) -> bool:
    return port.link_layer in ("InfiniBand", None) and port.state in ("ACTIVE", None)


def _is_set(prefix: str | int) -> bool:
    return prefix != DEFAULT_PREFIX


def _by(seen: Sequence[_Seen], value_of: Callable[[_Seen], str | int | None]) -> list[tuple[str | int, list[_Seen]]]:
    """The ports by a value that they share, unknown and zero left out, smallest value first."""
    grouped: dict[str | int, list[_Seen]] = {}
    for each in seen:
        value = value_of(each)
        if value:
            grouped.setdefault(value, []).append(each)
    return sorted(grouped.items(), key=lambda pair: (str(type(pair[0])), pair[0]))


def _distinct(seen: Sequence[_Seen]) -> list[_Seen]:
    """Without those that a GUID shows to be a port that was seen already."""
    guids: set[str] = set()
    kept = []
    for each in seen:
        guid = each.port.port_guid
        if guid is None or guid not in guids:
            kept.append(each)
        guids |= {guid} if guid else set()
    return kept


def _and(seen: Sequence[_Seen]) -> str:
    *most, last = map(str, seen)
    return f"{', '.join(most)} and {last}" if most else last

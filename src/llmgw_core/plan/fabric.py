"""Which InfiniBand fabrics a node takes part in, by its operator's words, and with which ports.

In: the words of `--fabric`, the node's ports, what was picked before.  Out: a `Fabric` for each.  Pure.
Rules: a fabric is stated, never guessed; the tree is evidence, not proof. A fabric on a node without InfiniBand is
refused at start. An adapter that is down or gone may come back, so it is the fabric's trouble, and the node goes on.
What was picked stays picked while the agent runs: another port may be on another network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from llmgw_core.model.node import Fabric, Found, IbPort, IbReport
from llmgw_core.model.replica import Hca
from llmgw_core.plan.fabric_words import StatedFabric, StatedHca

DEFAULT_ADAPTERS = 2
"""How many llmgw picks where the operator names none."""


@frozen
class _Found:
    """The ports that one fabric gets, and what speaks against them."""

    hcas: tuple[Hca, ...] = ()
    troubles: tuple[str, ...] = ()


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts `mlx5_2` before `mlx5_10`."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    return tuple((0, int(part), "") if part[0] in "0123456789" else (1, 0, part) for part in parts)


def impossible_fabrics(stated: Sequence[StatedFabric], report: IbReport) -> tuple[str, ...]:
    """Why an agent must not start: fabrics are stated for a node that has no InfiniBand at all."""
    if report.outcome is not Found.NONE:
        return ()
    return tuple(
        f"fabric {each.name} is stated, and this node has no InfiniBand: {report.reason}; leave out --fabric, "
        "load the driver or name the tree with --ib-root"
        for each in stated
    )


def resolve_fabrics(
    stated: Sequence[StatedFabric], report: IbReport, before: Sequence[Fabric] = ()
) -> tuple[Fabric, ...]:
    """The node's part in each stated fabric, in the order stated. `before` is what this gave the last time."""
    picked = {fabric.name: fabric.hcas for fabric in before if fabric.picked and len(fabric.hcas) >= DEFAULT_ADAPTERS}
    return tuple(_resolve(each, stated, report, picked.get(each.name, ())) for each in stated)


def _resolve(fabric: StatedFabric, stated: Sequence[StatedFabric], report: IbReport, picked: tuple[Hca, ...]) -> Fabric:
    if report.outcome is not Found.SOME:
        unknown = tuple(Hca(each.name, each.port) for each in fabric.hcas if each.port is not None)
        return Fabric(fabric.name, picked or unknown, not fabric.hcas, report.reason or "no InfiniBand")
    if fabric.hcas:
        found = _named(fabric.hcas, report.ports)
    elif picked:
        found = _named([StatedHca(hca.name, hca.port) for hca in picked], report.ports)
    else:
        found = _pick(stated, report.ports)
    return Fabric(fabric.name, found.hcas, not fabric.hcas, "; ".join(found.troubles))


def _named(hcas: Iterable[StatedHca], ports: Sequence[IbPort]) -> _Found:
    parts = [_port_of(hca, ports) for hca in hcas]
    return _Found(tuple(hca for part in parts for hca in part.hcas), tuple(t for part in parts for t in part.troubles))


def _port_of(named: StatedHca, ports: Sequence[IbPort]) -> _Found:
    """The one port that an adapter's name stands for: its only port, or the only one that is fit to use."""
    theirs = [port for port in ports if port.hca.name == named.name and named.port in (None, port.hca.port)]
    fit = [port for port in theirs if port.usable]
    if len(theirs) == 1 or len(fit) == 1:
        return _as_named((fit or theirs)[0])
    if not theirs:
        there = ", ".join(_each(port.hca for port in ports))
        return _Found((), (f"{named} is not there (there are: {there})",))
    if fit:
        ways = " or ".join(str(port.hca) for port in fit)
        return _Found((), (f"{named.name} has {len(fit)} ACTIVE ports: name one, {ways}",))
    return _Found((), tuple(_trouble(port) for port in theirs))


def _as_named(port: IbPort) -> _Found:
    return _Found((port.hca,), () if port.usable else (_trouble(port),))


def _trouble(port: IbPort) -> str:
    return f"{port.hca}: {port.trouble}"


def _pick(stated: Sequence[StatedFabric], ports: Sequence[IbPort]) -> _Found:
    """The first fit port of each of the first two adapters that no other fabric names."""
    taken = [hca for fabric in stated for hca in fabric.hcas]
    free = [port for port in _in_order(ports) if not any(hca.covers(port.hca) for hca in taken)]
    first: dict[str, Hca] = {}
    for port in free:
        if port.usable:
            first.setdefault(port.hca.name, port.hca)
    hcas = tuple(first.values())[:DEFAULT_ADAPTERS]
    if len(hcas) == DEFAULT_ADAPTERS:
        return _Found(hcas)
    has = f"{len(hcas)} ({', '.join(map(str, hcas))})" if hcas else "none"
    others = [_trouble(port) for port in free if not port.usable]
    lacking = (
        f"needs {DEFAULT_ADAPTERS} adapters with an ACTIVE InfiniBand port and finds {has}; name them if it has fewer"
    )
    return _Found(hcas, (lacking, *others))


def _in_order(ports: Iterable[IbPort]) -> list[IbPort]:
    return sorted(ports, key=lambda port: (natural(port.hca.name), port.hca.port))


def _each(hcas: Iterable[Hca]) -> Mapping[str, None]:
    return dict.fromkeys(sorted({hca.name for hca in hcas}, key=natural))

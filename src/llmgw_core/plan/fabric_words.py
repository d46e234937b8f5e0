"""The words of `--fabric`: `ib-b`, `ib-b:mlx5_2,mlx5_3`, `ib-b:mlx4_0:2`.

In: the words.  Out: a `StatedFabric` for each; raises `BadFabrics` with all mistakes at once.  Pure.
Rules: a port belongs to one fabric; an adapter that is named without a port is named with all of its ports; llmgw picks
the adapters of one fabric at most, since nobody but the operator knows which adapters are on which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.replica import Hca

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_ADAPTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PORT = re.compile(r"[1-9][0-9]{0,2}")
_FORM = "NAME, NAME:ADAPTER,ADAPTER or NAME:ADAPTER:PORT"


class BadFabrics(LlmgwError):
    """Words of `--fabric` that cannot be followed; `mistakes` has one line each."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


@frozen
class StatedHca:
    """An adapter as the operator names it."""

    name: str
    port: int | None = None
    """`None`: whichever of its ports is fit."""

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"

    def covers(self, hca: Hca) -> bool:
        return self.name == hca.name and self.port in (None, hca.port)

    def meets(self, other: StatedHca) -> bool:
        """Whether both may mean one port."""
        return self.name == other.name and (None in (self.port, other.port) or self.port == other.port)


@frozen
class StatedFabric:
    name: str
    hcas: tuple[StatedHca, ...] = ()
    """Empty: llmgw picks them."""


def parse_fabrics(words: Sequence[str]) -> tuple[StatedFabric, ...]:
    """The fabrics, in the order given; raises `BadFabrics`."""
    mistakes: list[str] = []
    fabrics = tuple(_parse(word, mistakes) for word in words)
    mistakes += _contradictions([fabric for fabric in fabrics if fabric.name])
    if mistakes:
        raise BadFabrics(tuple(dict.fromkeys(mistakes)))
    return fabrics


def _parse(word: str, mistakes: list[str]) -> StatedFabric:
    name, colon, listed = word.strip().partition(":")
    if not _NAME.fullmatch(name):
        mistakes.append(f"--fabric {word!r}: {name!r} is no name of a fabric; write {_FORM}")
        name = ""
    if not colon:
        return StatedFabric(name)
    hcas = []
    for each in listed.split(","):
        hca = _parse_hca(each.strip())
        if hca:
            hcas.append(hca)
        else:
            mistakes.append(f"--fabric {word!r}: {each.strip()!r} is no adapter; write {_FORM}")
    return StatedFabric(name, tuple(hcas) or (StatedHca(""),))


def _parse_hca(text: str) -> StatedHca | None:
    name, colon, port = text.partition(":")
    if not _ADAPTER.fullmatch(name) or (colon and not _PORT.fullmatch(port)):
        return None
    return StatedHca(name, int(port) if colon else None)


def _contradictions(fabrics: Sequence[StatedFabric]) -> Iterator[str]:
    names = [fabric.name for fabric in fabrics]
    yield from (
        f"fabric {name} is stated twice; name all its adapters at once" for name in names if names.count(name) > 1
    )
    named = [(fabric.name, hca) for fabric in fabrics for hca in fabric.hcas if hca.name]
    for (one, hca), (other, again) in combinations(named, 2):
        if not hca.meets(again):
            continue
        which = str(hca) if hca == again else f"{hca} and {again}"
        if one == other:
            yield f"fabric {one} names {which} twice"
        else:
            yield f"adapter {which} is under two fabrics, {one} and {other}: a port is cabled to one"
    left = list(dict.fromkeys(fabric.name for fabric in fabrics if not fabric.hcas))
    if len(left) > 1:
        yield f"fabrics {' and '.join(left)} leave their adapters to llmgw, which cannot tell them apart: name them"

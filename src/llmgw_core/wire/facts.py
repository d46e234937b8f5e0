"""A node's facts as JSON text, for the store; what an older release wrote is read too."""

from __future__ import annotations

import json
from functools import cache
from itertools import islice
from operator import is_
from typing import Any

import attrs
from cattrs import Converter

from llmgw_core.model.node import NodeFacts
from llmgw_core.model.shard import ShardStatus


@cache
def _converter() -> Converter:
    return Converter(omit_if_default=True, detailed_validation=False)


def plain_facts(facts: NodeFacts) -> dict[str, Any]:
    """As JSON values; what is as when nobody sets it is left out."""
    plain: dict[str, Any] = _converter().unstructure(facts)
    return plain


def render_facts(facts: NodeFacts) -> str:
    return json.dumps(plain_facts(facts), separators=(",", ":"))


def parse_facts(text: str) -> NodeFacts:
    return _converter().structure(json.loads(text), NodeFacts)


TEXT_CHARACTERS = (500, 50, 10)
"""The longest text; the next shorter limit where all of them together are over `FACTS_BYTES`."""
FACTS_BYTES = 256 * 1024
_MOST = {"gpus": 256, "ports": 256, "fabrics": 64, "engines": 64, "hcas": 16, "refused_plugins": 64}
_MOST |= {"offers": 1024, "busy_ports": 256, "strays": 64, "stray_gpus": 256}
_MARK = "…"


def clipped(text: str, characters: int) -> str:
    """`text`, or its beginning and a mark."""
    return text if len(text) <= characters else text[: characters - 1] + _MARK


def bounded(facts: NodeFacts) -> NodeFacts:
    """What of a node's facts is kept and shown, whatever it said: so many of each thing, and texts of such a length."""
    for characters in TEXT_CHARACTERS:
        dropped: list[str] = []
        kept: NodeFacts = _bounded(facts, characters, dropped)
        if len(render_facts(kept)) <= FACTS_BYTES:
            break
    told = tuple(dict.fromkeys(dropped))[: len(_MOST)]
    return attrs.evolve(kept, refused_plugins=(*told, *kept.refused_plugins)[: _MOST["refused_plugins"]])


MOST_SHARDS = 1024
REPLICA_CHARACTERS = 256
MOST_ARGUMENTS = 512
TAIL_CHARACTERS = 8000


def bounded_shards(shards: tuple[ShardStatus, ...]) -> tuple[ShardStatus, ...]:
    """What of a node's shards is kept and shown, whatever it said: of no replica that could not have such a name."""
    possible = (each for each in shards if len(each.replica) <= REPLICA_CHARACTERS)
    return tuple(map(_bounded_shard, islice(possible, MOST_SHARDS)))


def _bounded_shard(shard: ShardStatus) -> ShardStatus:
    failure = shard.failure
    if failure is not None:
        tail, longest = failure.log_tail[-TAIL_CHARACTERS:], TEXT_CHARACTERS[0]
        reason, kind, exit = (clipped(each, longest) for each in (failure.reason, failure.kind, failure.exit))
        failure = attrs.evolve(failure, kind=kind, reason=reason, exit=exit, log_tail=tail)
    argv = tuple(clipped(word, TAIL_CHARACTERS) for word in shard.argv[:MOST_ARGUMENTS])
    reason = clipped(shard.reason, TEXT_CHARACTERS[0])
    gpus = tuple(clipped(gpu, TEXT_CHARACTERS[0]) for gpu in shard.gpus[: _MOST["gpus"]])
    version, digest = _clipped_if(shard.engine_version), _clipped_if(shard.help_digest)
    shard = attrs.evolve(shard, engine_version=version, help_digest=digest)
    return attrs.evolve(shard, reason=reason, failure=failure, argv=argv, gpus=gpus)


def _clipped_if(text: str | None) -> str | None:
    return None if text is None else clipped(text, TEXT_CHARACTERS[0])


def _bounded(value: Any, characters: int, dropped: list[str]) -> Any:
    """`value`, an attrs object, with its texts and tuples cut; itself where there is nothing to cut."""
    changes: dict[str, Any] = {}
    for each in attrs.fields(type(value)):
        old = getattr(value, each.name)
        new = _cut(old, characters, dropped, each.name)
        if new is not old:
            changes[each.name] = new
    return attrs.evolve(value, **changes) if changes else value


def _cut(value: Any, characters: int, dropped: list[str], name: str) -> Any:
    if isinstance(value, str):
        return clipped(value, characters)
    if isinstance(value, tuple):
        most = _MOST.get(name, 64)
        if len(value) > most:
            dropped.append(f"too much was reported: {len(value)} {name}, of which {most} are kept")
        cut = tuple(_cut(each, characters, dropped, name) for each in value[:most])
        return value if len(cut) == len(value) and all(map(is_, cut, value)) else cut
    return _bounded(value, characters, dropped) if attrs.has(type(value)) else value


def fitting(values: list[dict[str, Any]], limit_bytes: int, *, last: bool) -> list[dict[str, Any]]:
    """The first (or the last) of `values`, as many as take so many bytes as they are sent."""
    kept: list[dict[str, Any]] = []
    for each in reversed(values) if last else values:
        limit_bytes -= len(json.dumps(each)) + 1
        if limit_bytes < 0:
            break
        kept.append(each)
    return kept[::-1] if last else kept

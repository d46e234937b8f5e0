"""Decisions as JSON text, for the store, and what of a value counts as the same."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from attrs import evolve
from cattrs import Converter

from llmgw_core.model.catalog import HealthTimings, Profile
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.launch import Offer


@cache
def _converter() -> Converter:
    return Converter(omit_if_default=True, detailed_validation=False)


def plain(value: Any) -> Any:
    """As JSON values; what is as when nobody sets it is left out."""
    return _converter().unstructure(value)


def render_record(record: ReplicaRecord) -> str:
    return json.dumps(plain(record), separators=(",", ":"))


def parse_record(text: str) -> ReplicaRecord:
    return _converter().structure(json.loads(text), ReplicaRecord)


def render_offers(offers: tuple[Offer, ...]) -> str:
    return json.dumps(plain(offers), separators=(",", ":"))


def parse_offers(text: str) -> tuple[Offer, ...]:
    return _converter().structure(json.loads(text), tuple[Offer, ...])


def offer_key(model: str, source: str, profile: Profile) -> str:
    """Equal for what needs no new start: how patient one is with an engine, and which GPUs do, may change meanwhile."""
    lasting = evolve(profile, health=HealthTimings(), min_gpu_memory_mib=0)
    text = json.dumps([model, source, plain(lasting)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

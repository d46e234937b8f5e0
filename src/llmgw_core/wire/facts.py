"""A node's facts as JSON text, for the store; what an older release wrote is read too."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cattrs import Converter

from llmgw_core.model.node import NodeFacts


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

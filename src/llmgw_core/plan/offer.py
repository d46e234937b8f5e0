"""Which offers a model has."""

from __future__ import annotations

from collections.abc import Mapping

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.launch import Offer


def offers_by_model(catalog: Catalog, offers: Mapping[tuple[str, str], Offer]) -> dict[str, tuple[Offer, ...]]:
    """Of each model, in the order in which they are given: the preferred first."""
    found: dict[str, list[Offer]] = {name: [] for name in catalog.models}
    for (model, _), offer in offers.items():
        if model in found:
            found[model].append(offer)
    return {name: tuple(those) for name, those in found.items()}

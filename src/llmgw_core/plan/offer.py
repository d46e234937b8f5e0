"""Which offers a model has."""

from __future__ import annotations

from collections.abc import Mapping

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.launch import Offer


def offers_by_model(catalog: Catalog, offers: Mapping[tuple[str, str], Offer]) -> dict[str, tuple[Offer, ...]]:
    """Of each model, the preferred first."""
    return {
        name: tuple(offers[name, profile] for profile in model.profiles if (name, profile) in offers)
        for name, model in catalog.models.items()
    }

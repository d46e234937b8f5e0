"""What an operator desires: `apply`, `plan` and `scale`.

Rules: what is desired is stored before it is answered, all of it or nothing; mistakes in a catalog come all at once.
"""

from __future__ import annotations

from typing import Any

import attrs
import trio

from llmgw_core.codec import parse_catalog
from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.deployment import make_offers
from llmgw_core.control.observing import observe
from llmgw_core.control.plane import Plane
from llmgw_core.model.catalog import MOST_REPLICAS, Catalog
from llmgw_core.plan.preview import PlannedChange, what_changes
from llmgw_core.plan.rollout import find_served
from llmgw_core.plan.world import World
from llmgw_core.store.change import CatalogApplied, ModelCreated, ModelScaled, OffersServed
from llmgw_core.store.reading import AppliedCatalog
from llmgw_core.wire.facts import clipped
from llmgw_core.wire.record import render_offers

NAME_CHARACTERS = 200
DETAIL_CHARACTERS = 500


async def apply(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """Replace what is desired; what changes with it, as `plan` says."""
    name, text, catalog = _catalog_argument(arguments)
    offers = make_offers(catalog)
    changes = await _preview(plane, catalog)
    applied = AppliedCatalog(plane.now(), operator, name, text)
    replicas = sum(model.replicas for model in catalog.models.values())
    told = f"{name} by {operator}: {_many(len(catalog.models), 'model')}, {_many(replicas, 'replica')}"
    served = find_served(plane.deployment.records.values(), plane.deployment.offers, offers)
    before = [OffersServed(model, render_offers(those)) for model, those in served.items()]
    event = plane.event("catalog applied", "", told)
    new = [ModelCreated(model, applied.at) for model in catalog.models if model not in plane.deployment.created]
    await plane.writer.write(*before, *new, CatalogApplied(name, text, operator, applied.at), event)
    plane.deployment.served.update(served)
    plane.deployment.desire(applied, catalog, offers)
    plane.deployment.desire_again()
    return changes


async def plan(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """What `apply` of this catalog would change; nothing is done."""
    _, _, catalog = _catalog_argument(arguments)
    make_offers(catalog)
    return await _preview(plane, catalog)


async def scale(plane: Plane, operator: str, arguments: Arguments) -> None:
    """Another number of replicas, until the next `apply`."""
    model = argument(arguments, "model", str, "")
    replicas = argument(arguments, "replicas", int, -1)
    known = plane.deployment.catalog.models if plane.deployment.catalog else {}
    if model not in known:
        there = ", ".join(sorted(known)) or "none; `llmgw ctl apply FILE` brings some"
        raise BadQuestion(f"the catalog has no model {clipped(model, 80)!r} (there are: {clipped(there, 500)})")
    if not 0 <= replicas <= MOST_REPLICAS:
        raise BadQuestion(f"replicas: expected 0 to {MOST_REPLICAS}, got {replicas}")
    before = plane.deployment.wanted[model]
    how = f"from {before} to {replicas}" if replicas != before else f"to {replicas}, as before"
    told = plane.event("model scaled", "", f"{model} {how} by {operator}")
    await plane.writer.write(ModelScaled(model, replicas), told)
    plane.deployment.scales[model] = replicas
    plane.deployment.desire_again()


def _catalog_argument(arguments: Arguments) -> tuple[str, str, Catalog]:
    name = clipped(argument(arguments, "name", str, "catalog"), NAME_CHARACTERS)
    text = argument(arguments, "text", str, "")
    return name, text, parse_catalog(text, name)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


async def _preview(plane: Plane, catalog: Catalog) -> list[dict[str, Any]]:
    before = observe(plane)
    after = _with_catalog(before, catalog)
    return [_shown(each) for each in await trio.to_thread.run_sync(what_changes, before, after)]


def _shown(change: PlannedChange) -> dict[str, Any]:
    return {"kind": change.kind.value, "subject": change.subject, "detail": clipped(change.detail, DETAIL_CHARACTERS)}


def _with_catalog(world: World, catalog: Catalog) -> World:
    wanted = {name: model.replicas for name, model in catalog.models.items()}
    return attrs.evolve(world, catalog=catalog, wanted=wanted, offers=make_offers(catalog), applied_at=world.now)

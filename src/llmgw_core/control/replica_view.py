"""Models and replicas as an operator sees them: plain values, with a reason for whatever is not ready.

Rules: a list fits into one message; what one replica says in full is shown of that one only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

import attrs
import trio

from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.log_reading import replica_argument
from llmgw_core.control.observing import observe
from llmgw_core.control.plane import Plane
from llmgw_core.model.deployment import Assignment, ReplicaRecord
from llmgw_core.model.replica import Endpoint
from llmgw_core.plan.explain import explain
from llmgw_core.plan.parting import gateways_of
from llmgw_core.plan.replica_state import ReplicaState, Standing, replica_state
from llmgw_core.plan.roster import ordinal_of
from llmgw_core.plan.sighting import Sighting, look_at
from llmgw_core.plan.world import World
from llmgw_core.wire.facts import clipped, fitting
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

LIST_BYTES = MESSAGE_LIMIT_BYTES // 2
REASON_CHARACTERS = 500


async def list_models(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """The catalog's models by name, each with how many of its replicas are ready, and the first trouble."""
    catalog = plane.deployment.catalog
    standings = defaultdict(list)
    for record, standing in _standings(plane, observe(plane)):
        standings[record.model].append((record.id, standing))
    models = catalog.models.items() if catalog else ()
    views = [
        {
            "name": name,
            "source": model.source,
            "labels": dict(model.labels),
            "profiles": list(model.profiles),
            "wanted": plane.deployment.wanted[name],
            "scaled": name in plane.deployment.scales,
            "ready": sum(standing.state is ReplicaState.READY for _, standing in standings[name]),
            "states": Counter(standing.state.value for _, standing in standings[name]),
            "trouble": _first_trouble(standings[name]),
        }
        for name, model in sorted(models)
    ]
    return fitting(views, LIST_BYTES, last=False)


async def list_replicas(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """All that are wanted or not gone yet, by model and ordinal."""
    model = argument(arguments, "model", str, "")
    world, offered = observe(plane), _offered(plane)
    standings = [(record, standing) for record, standing in _standings(plane, world) if model in ("", record.model)]
    views = [_outline(world, record, standing, offered) for record, standing in standings]
    return fitting(views, LIST_BYTES, last=False)


async def show_replica(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """One replica in full; of what it failed with, the first failure of the loop and the last."""
    record, world = replica_argument(plane, arguments), observe(plane)
    serving = record.serving
    shards = look_at(serving.launch, world.nodes, frozenset()) if serving else ()
    meeting = serving.launch.rendezvous_port if serving else None
    beside = [
        sighting
        for attempt in record.attempts
        if attempt is not serving
        for sighting in look_at(attempt.launch, world.nodes, frozenset())
    ]
    return {
        **_outline(world, record, _standing(plane, record, world), _offered(plane)),
        "rendezvous": str(Endpoint(shards[0].place.address, meeting)) if meeting else "",
        "shards": [_shard(each) for each in shards],
        "beside": [_shard(each) for each in beside],
        "first_failure": attrs.asdict(record.first_failure) if record.first_failure else None,
        "last_failure": attrs.asdict(record.last_failure) if record.last_failure else None,
        "replacement_failure": _replacement_failure(record),
    }


def _replacement_failure(record: ReplicaRecord) -> dict[str, Any] | None:
    failure = record.move.failure if record.move is not None else None
    return attrs.asdict(failure) if failure is not None else None


async def explain_model(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """For one more replica of the model: per profile and node the first filter that refuses it."""
    model, world = argument(arguments, "model", str, ""), observe(plane)
    explained = await trio.to_thread.run_sync(explain, world, model)
    if explained.refusal:
        raise BadQuestion(clipped(explained.refusal, REASON_CHARACTERS))
    standings = [(record, standing) for record, standing in _standings(plane, world) if record.model == model]
    return {
        "model": model,
        "wanted": plane.deployment.wanted[model],
        "ready": sum(standing.state is ReplicaState.READY for _, standing in standings),
        "waiting": {
            record.id: f"{standing.state.value}: {standing.reason}"
            for record, standing in standings
            if standing.state is not ReplicaState.READY
        },
        "profiles": [attrs.asdict(each) for each in explained.profiles],
        "draining": list(explained.draining),
        "guarded": list(plane.deployment.decision.guarded),
    }


def _standings(plane: Plane, world: World) -> list[tuple[ReplicaRecord, Standing]]:
    records = sorted(plane.deployment.records.values(), key=lambda each: (each.model, ordinal_of(each.id)))
    return [(record, _standing(plane, record, world)) for record in records if record.attempts or not record.retired]


def _standing(plane: Plane, record: ReplicaRecord, world: World) -> Standing:
    decision = plane.deployment.decision
    unplaced, blocked = decision.unplaced.get(record.id, ""), plane.deployment.blocked.get(record.id, "")
    return replica_state(record, world.nodes, world.now, unplaced, blocked)


def _first_trouble(standings: Iterable[tuple[str, Standing]]) -> str:
    for id, standing in standings:
        if standing.state is not ReplicaState.READY or standing.blocked:
            return clipped(f"{id} is {standing.state.value}: {standing.reason}", REASON_CHARACTERS)
    return ""


def _offered(plane: Plane) -> frozenset[str]:
    return frozenset(offer.key for offer in plane.deployment.offers.values())


def _outline(world: World, record: ReplicaRecord, standing: Standing, offered: Container[str]) -> dict[str, Any]:
    """`offered`: the keys of today's offers. `routed`: it is ready, and every gateway that is heard leads there."""
    serving = record.serving
    return {
        "id": record.id,
        "model": record.model,
        "state": standing.state.value,
        "reason": clipped(standing.reason, REASON_CHARACTERS),
        "blocked": standing.blocked,
        "routed": standing.state is ReplicaState.READY and serving is not None and gateways_of(world).know(serving),
        "generation": serving.launch.generation if serving else record.generation,
        "failures": record.failures,
        "outdated": serving is not None and serving.launch.offer.key not in offered,
        **_placed(serving),
    }


def _placed(assignment: Assignment | None) -> dict[str, Any]:
    if assignment is None:
        return {"profile": "", "engine": "", "nodes": [], "address": "", "placed_at": None, "ready_at": None}
    launch = assignment.launch
    return {
        "profile": launch.offer.profile_name,
        "engine": launch.offer.profile.engine,
        "nodes": [place.node for place in launch.places],
        "address": str(Endpoint(launch.places[0].address, launch.places[0].port)),
        "placed_at": assignment.placed_at,
        "ready_at": assignment.ready_at,
    }


def _shard(sighting: Sighting) -> dict[str, Any]:
    place, status = sighting.place, sighting.status
    return {
        "rank": sighting.rank,
        "node": place.node,
        "phase": status.phase.value if status else _unseen(sighting),
        "reason": clipped(status.reason, REASON_CHARACTERS) if status else "",
        "port": place.port,
        "pid": status.pid if status else 0,
        "gpus": list(place.gpus),
        "hcas": [str(hca) for hca in place.hcas],
        "engine": status.engine_version or "" if status else "",
        "argv": _argv(status.argv) if status else [],
    }


def _unseen(sighting: Sighting) -> str:
    return "not begun" if sighting.reached else "unknown"


def _argv(argv: Sequence[str]) -> list[str]:
    return [clipped(word, REASON_CHARACTERS) for word in argv]

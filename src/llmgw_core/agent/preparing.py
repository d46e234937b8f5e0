"""All that can be checked of a shard before anything of it starts.

In: a launch, a rank, the node.  Out: the very command and its sidecars, or `Trouble` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import trio
from attrs import field, frozen

from llmgw_core.agent.judging import refusal_of
from llmgw_core.agent.node import Node
from llmgw_core.agent.ports import describe_stranger, listeners, port_trouble
from llmgw_core.agent.processes import read_processes
from llmgw_core.checking import program_of
from llmgw_core.discovery.engines import Inspected
from llmgw_core.engine import Command, Endpoint, Failure, FailureKind, Shard, Slot
from llmgw_core.errors import ImpossibleReplica, LlmgwError
from llmgw_core.model.catalog import Profile
from llmgw_core.model.launch import Launch
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.plan.profile import replica_of
from llmgw_core.plan.sidecar import PlacedSidecar, needed_ports, placed_profile, placed_sidecar


class Trouble(LlmgwError):
    """Why a shard cannot go on."""

    def __init__(self, failure: Failure, exit: str = "", tail: str = "") -> None:
        self.failure, self.exit, self.tail = failure, exit, tail
        super().__init__(failure.reason)


@frozen
class Prepared:
    """A shard that may be started."""

    shard: Shard
    command: Command
    sidecars: Mapping[str, PlacedSidecar] = field(converter=frozen_mapping, hash=False)
    """With every placeholder replaced."""
    sidecar_ports: Mapping[str, int] = field(converter=frozen_mapping, hash=False)


async def prepare(node: Node, launch: Launch, rank: int, directory: Path, inspected: Inspected) -> Prepared:
    """With the engine as it is installed now; raises `Trouble`."""
    profile = launch.offer.profile
    ports = await lend_ports(node, launch)
    try:
        work = str(directory / "work")
        build = partial(_build, node, launch, rank, work, ports, inspected)
        shard, command = await trio.to_thread.run_sync(build, abandon_on_cancel=True)
        await trio.to_thread.run_sync(check_ports, node, launch, rank, abandon_on_cancel=True)
        await _check_weights(node, launch.offer.source)
    except BaseException:
        node.lent_ports -= set(ports.values())
        raise
    sidecars = {name: placed_sidecar(name, each, ports, work) for name, each in profile.sidecars.items()}
    return Prepared(shard, command, sidecars, ports)


async def lend_ports(node: Node, launch: Launch) -> dict[str, int]:
    engines_own = {place.port for place in launch.places}
    ports: dict[str, int] = {}
    for name in needed_ports(launch.offer.profile):
        port = node.lend_port(engines_own)
        if port is None:
            node.lent_ports -= set(ports.values())
            raise Trouble(Failure(FailureKind.PORT_IN_USE, f"sidecar {name}: no port of {node.serve_ports} is free"))
        ports[name] = port
    return ports


def _build(
    node: Node, launch: Launch, rank: int, work: str, ports: Mapping[str, int], inspected: Inspected
) -> tuple[Shard, Command]:
    engine = launch.offer.profile.engine
    program = program_of(node.engines.info(engine), rank)
    executable = inspected.executables.get(program)
    if executable is None:
        reason = inspected.found.reason or next(iter(inspected.warnings), f"{program} was not found")
        raise Trouble(Failure(FailureKind.BAD_CONFIGURATION, reason))
    try:
        shard = shard_of(launch, rank, placed_profile(launch.offer.profile, ports, work), work, executable)
        command = node.engines.build_command(shard, inspected.tables.get(program))
    except ImpossibleReplica as error:
        raise Trouble(Failure(FailureKind.BAD_CONFIGURATION, "; ".join(error.reasons))) from error
    refusal = refusal_of(node.engines, engine, inspected, (command,))
    if refusal:
        raise Trouble(Failure(FailureKind.BAD_ARGUMENTS, refusal))
    return shard, command


def shard_of(launch: Launch, rank: int, profile: Profile, work: str, executable: tuple[str, ...]) -> Shard:
    """The shard as its engine's plugin is to see it. The other shards' executables are not known here."""
    slots = [
        Slot(
            executable=executable,
            listen=Endpoint("0.0.0.0", place.port),
            address=place.address,
            directory=work,
            interface=place.interface,
            gpus=place.gpus,
            hcas=place.hcas,
        )
        for place in launch.places
    ]
    head, port = launch.places[0].address, launch.rendezvous_port
    replica = replica_of(
        profile,
        id=launch.replica,
        served_name=launch.offer.model,
        source=launch.offer.source,
        slots=slots,
        rendezvous=Endpoint(head, port) if port is not None and len(slots) > 1 else None,
        key=launch.key,
    )
    return Shard(replica, rank)


def check_ports(node: Node, launch: Launch, rank: int) -> None:
    """Raises `Trouble` where the engine could not listen."""
    ports = [launch.places[rank].port]
    if rank == 0 and launch.rendezvous_port is not None and len(launch.places) > 1:
        ports.append(launch.rendezvous_port)
    check_free(node, ports)


def check_free(node: Node, ports: Sequence[int], who: str = "") -> None:
    for port in ports:
        trouble = port_trouble(port)
        if trouble:
            inodes = listeners().get(port, frozenset())
            said = describe_stranger(port, inodes, read_processes(node.agent)) if inodes else trouble
            raise Trouble(Failure(FailureKind.PORT_IN_USE, f"{who}{said}"))


async def _check_weights(node: Node, source: str) -> None:
    reason = await node.weights.trouble(source)
    if reason:
        raise Trouble(Failure(FailureKind.WEIGHTS, reason))

"""The command of one shard of a simulated replica: the same on every node but for the rank and the place.

In: a shard.  Out: a `Command`.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmgw_core.engine import Command, ReplicaSpec, Settings, Shard, Slot, Stop, StopStep
from llmgw_engine_sim.info import PROGRAM

# A worker that goes first takes the head with it, and the requests that the head still serves.
_STOP = Stop(steps=(StopStep("SIGTERM", 30.0),), head_first=True, drains=True)


def build_command(shard: Shard) -> Command:
    replica = shard.replica
    return Command(
        program=PROGRAM,
        executable=shard.slot.executable,
        args=(*_place(shard), *_sizes(replica), *_settings(replica.settings)),
        extra_args=replica.extra_args,
        env={**_devices(shard.slot), **replica.extra_env},
        secret_env={} if replica.api_key is None else {"SIM_API_KEY": replica.api_key},
        unset_env=("SIM_API_KEY",),
        stop=_STOP,
    )


def _place(shard: Shard) -> Iterator[str]:
    replica, listen = shard.replica, shard.slot.listen
    yield from ("--model", replica.source, "--served-model-name", replica.served_name)
    yield from ("--host", listen.address, "--port", str(listen.port))
    if replica.rendezvous is not None:
        yield from ("--nnodes", str(replica.nodes), "--node-rank", str(shard.node_rank))
        yield from ("--dist-init-addr", str(replica.rendezvous))


def _sizes(replica: ReplicaSpec) -> Iterator[str]:
    parallel = replica.parallel
    sizes = {"tensor": parallel.tensor, "pipeline": parallel.pipeline, "data": parallel.data, "expert": parallel.expert}
    for name, size in sizes.items():
        if size > 1:
            yield from (f"--{name}-parallel-size", str(size))


def _settings(settings: Settings) -> Iterator[str]:
    if settings.context_length is not None:
        yield from ("--context-length", str(settings.context_length))
    if settings.max_sequences is not None:
        yield from ("--max-sequences", str(settings.max_sequences))
    if not settings.metrics:
        yield "--no-metrics"


def _devices(slot: Slot) -> dict[str, str]:
    """What a real engine would be given, so that tests and the demonstration can look at it."""
    env = {"CUDA_VISIBLE_DEVICES": ",".join(slot.gpus)}
    if slot.interface:
        env["NCCL_SOCKET_IFNAME"] = slot.interface
    if slot.hcas:
        env["NCCL_IB_HCA"] = "=" + ",".join(map(str, slot.hcas))
    return env

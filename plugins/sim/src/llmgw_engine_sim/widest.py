"""Replicas whose commands together hold every flag that this plugin passes. Never launched."""

from __future__ import annotations

from llmgw_core.engine import Endpoint, Hca, Parallel, ReplicaSpec, Secret, Settings, Slot
from llmgw_engine_sim.info import PROGRAM


def widest_specs() -> tuple[ReplicaSpec, ...]:
    widest = ReplicaSpec(
        id="widest/0",
        engine="sim",
        source="/srv/models/widest",
        served_name="widest",
        slots=(_slot(0), _slot(1)),
        rendezvous=Endpoint("10.0.0.1", 19000),
        parallel=Parallel(tensor=2, pipeline=2, data=2, expert=2),
        settings=Settings(context_length=8192, max_sequences=16, metrics=False),
        api_key=Secret("widest"),
        extra_env={"SIM_NOTE": "widest"},
    )
    return (widest,)


def _slot(rank: int) -> Slot:
    return Slot(
        executable=(PROGRAM,),
        listen=Endpoint("0.0.0.0", 18000 + rank),
        address=f"10.0.0.{rank + 1}",
        directory=f"/var/lib/llmgw/widest-0-{rank}",
        interface="ib0",
        gpus=tuple(f"GPU-{rank}{number}" for number in range(4)),
        hcas=(Hca("mlx5_2"), Hca("mlx5_3")),
    )

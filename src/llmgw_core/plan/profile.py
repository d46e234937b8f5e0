"""A profile as a replica: what it asks for, in places that are given.

In: a profile, its model and slots.  Out: a `ReplicaSpec`; raises `ImpossibleReplica`.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmgw_core.model.catalog import Profile
from llmgw_core.model.replica import Endpoint, Hca, ReplicaSpec, Secret, Slot

# Stand-in places: documentation addresses (RFC 5737), so that nobody takes them for a fleet's.
_ADDRESS = "192.0.2.{}"


def replica_of(
    profile: Profile,
    *,
    id: str,
    served_name: str,
    source: str,
    slots: Sequence[Slot],
    rendezvous: Endpoint | None,
    key: str = "",
) -> ReplicaSpec:
    """The replica that a profile describes, in these slots; `key`: what its engine is to ask for, empty: nothing."""
    return ReplicaSpec(
        id=id,
        engine=profile.engine,
        source=source,
        served_name=served_name,
        slots=tuple(slots),
        rendezvous=rendezvous,
        parallel=profile.parallel,
        settings=profile.settings,
        api_key=Secret(key) if key else None,
        extra_args=profile.extra_args,
        extra_env=profile.env,
    )


def stand_in_replica(profile: Profile, name: str, served_name: str, source: str, key: str = "") -> ReplicaSpec:
    """The replica of a profile in made-up places, for checking its command before any node is chosen."""
    slots = [_stand_in_slot(profile, rank) for rank in range(max(profile.nodes, 0))]
    head = Endpoint(_ADDRESS.format(1), 19000) if profile.nodes > 1 else None
    return replica_of(profile, id=name, served_name=served_name, source=source, slots=slots, rendezvous=head, key=key)


def _stand_in_slot(profile: Profile, rank: int) -> Slot:
    return Slot(
        executable=(profile.engine,),
        listen=Endpoint("0.0.0.0", 18000 + rank),
        address=_ADDRESS.format(rank + 1),
        directory=f"/run/llmgw/shards/{rank}",
        interface="eth0",
        gpus=tuple(f"GPU-{rank}-{index}" for index in range(profile.gpus_per_node)),
        hcas=(Hca("mlx5_0"),) if profile.nodes > 1 else (),
    )

"""What a node is told to run: a whole replica as it was placed, of which it runs one shard."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen

from llmgw_core.model.catalog import Profile
from llmgw_core.model.replica import Hca


@frozen
class Offer:
    """A model with one of its profiles, that a node may be asked to run: it says whether it could."""

    key: str
    """Digest of the other fields; two offers with one key are the same."""
    model: str
    source: str
    profile_name: str
    profile: Profile


@frozen
class OfferChecked:
    """A node's answer to an offer."""

    key: str
    refusal: str = ""
    """Why its engine would refuse the command of a head or of a worker, or why there is none; empty: it accepts."""
    weights: str = ""
    """Why the weights cannot be used; empty: they are complete, or the engine fetches them itself."""
    workers_first: bool = False
    """Whether the workers must run before the head starts."""
    head_first: bool = False
    """Whether the head must be gone before the workers are stopped."""
    takes_key: bool = False
    """Whether its engine can be told to ask for a key, without the key being in its arguments."""


@frozen
class Place:
    """Where one shard goes."""

    node: str
    address: str
    """The node's own, by which the other shards reach it."""
    port: int
    """Where this shard's program listens."""
    gpus: tuple[str, ...] = ()
    """UUIDs; a printed index where the driver gives no UUID."""
    hcas: tuple[Hca, ...] = ()
    interface: str | None = None


@frozen
class Launch:
    """One attempt to run a replica. `places[0]` is the head's."""

    replica: str
    """`qwen3-235b/2`."""
    generation: int
    offer: Offer
    places: tuple[Place, ...]
    rendezvous_port: int | None = None
    """On the head's node; needed from two nodes on."""
    key: str = field(default="", repr=False)
    """What its engine asks whoever calls it for; empty: nothing. Secret."""

    def shard_id(self, rank: int) -> str:
        return f"{self.replica}#{rank}"


class Stage(Enum):
    """How far a node is to go with a shard."""

    PREPARE = "prepare"
    """Check everything that can be checked (the very command, ports, weights) and start nothing."""
    RUN = "run"


@frozen
class RunShard:
    """Bring one shard of an attempt so far. Safe to repeat."""

    launch: Launch
    rank: int
    stage: Stage


@frozen
class StopShard:
    """Nothing of this attempt's shard is to be left, nor in the list of what runs. Safe to repeat."""

    replica: str
    generation: int
    rank: int
    in_flight_s: float = 0.0
    """How long the requests that it works on may go on before it is told to stop."""


Order = RunShard | StopShard

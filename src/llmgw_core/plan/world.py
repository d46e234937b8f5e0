"""What is decided about, and what a decision is: values only.

`World` is one snapshot of desired, decided and observed; `Decision` says what changes. Equal worlds give equal
decisions.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from llmgw_core.model.catalog import Catalog
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.model.drain import Drain, Rollout
from llmgw_core.model.launch import Offer, Order
from llmgw_core.model.node import NodeFacts
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.model.route import ModelRoute
from llmgw_core.model.shard import ShardStatus
from llmgw_core.plan.liveness import NodeState


@frozen
class ObservedNode:
    """A node as it is seen now."""

    name: str
    state: NodeState
    facts: NodeFacts | None = None
    shards: tuple[ShardStatus, ...] | None = None
    """All that it runs; `None` before it has said so on this link, and while it is away."""
    settled: bool = False
    """Whether `shards` was said after the last order was heard: only then does absent mean gone."""
    last_heard: float = 0.0
    draining: bool = False
    """Whether it takes nothing new."""


Attempt = tuple[str, int]
"""A replica and its generation."""


@frozen
class ObservedGateway:
    """A gateway as it is seen now."""

    name: str
    routes: frozenset[Attempt] | None = None
    """To which the table that it has taken leads; `None`: that is not known, and it may be any."""
    lingering: Mapping[Attempt, int] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By attempt to which it leads no more, how many requests it still has there."""
    silent_since: float | None = None
    """Since when nothing was heard of it, or it takes no table; seconds since 1970. `None`: it does as it should."""


@frozen
class World:
    catalog: Catalog | None
    """`None`: nothing was ever applied here, and nothing that runs is touched."""
    wanted: Mapping[str, int] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By model, how many replicas: the catalog's number or what the operator scaled to since."""
    offers: Mapping[tuple[str, str], Offer] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By model and profile name."""
    records: Mapping[str, ReplicaRecord] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By replica id."""
    nodes: Mapping[str, ObservedNode] = field(factory=dict, converter=frozen_mapping, hash=False)
    gateways: tuple[ObservedGateway, ...] = ()
    """Those that are there, and those that went so lately that they may still send requests somewhere."""
    refuted: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By fabric, what proves that it is none: no replica over several nodes there."""
    drains: Mapping[str, Drain] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By node."""
    rollouts: Mapping[str, Rollout] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By model, where a change was asked for again."""
    applied_at: float = 0.0
    """When the catalog was; seconds since 1970."""
    soak_s: float = 10.0
    """How long a replacement must have been ready without a break."""
    now: float = 0.0
    """Seconds since 1970."""
    seed: str = field(default="", repr=False)
    """At random, another one for each look: keys of engines are made of it. Empty: they have none."""
    lost_after_s: float = 60.0
    spared: Mapping[str, float] = field(factory=dict, converter=frozen_mapping, hash=False)
    """As the last decision says."""


@frozen
class OrderTo:
    node: str
    order: Order


@frozen
class Happening:
    """What is worth an event."""

    kind: str
    node: str
    """Empty when it is about no node."""
    reason: str


@frozen
class Decision:
    records: tuple[ReplicaRecord, ...] = ()
    """Those that changed, to be stored before any order is sent."""
    orders: tuple[OrderTo, ...] = ()
    """All that is to be done now, in order; whoever carries them out leaves out what was said on the same link."""
    happenings: tuple[Happening, ...] = ()
    unplaced: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By replica id, why it has no place now."""
    routes: tuple[ModelRoute, ...] = ()
    """Where requests may go from now on, by model."""
    blocked: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By replica id, why it cannot move away although it should."""
    guarded: tuple[str, ...] = ()
    """Why silent nodes keep their replicas although they would be lost by now; a line for each such loss."""
    spared: Mapping[str, float] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By such a node, until when at the latest; infinite while it is silent with too many others."""
    look_again_at: float | None = None
    """When time alone changes something; seconds since 1970."""

"""What the control plane has decided about each replica, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen

from llmgw_core.model.launch import Launch
from llmgw_core.model.replica import frozen_mapping


@frozen
class Assignment:
    """One attempt to run a replica: where its shards are, and whether they are to run or to go."""

    launch: Launch
    placed_at: float
    """Seconds since 1970; the start deadline counts from here."""
    workers_first: bool = False
    head_first: bool = False
    engine_version: str | None = None
    stopping: str = ""
    """Why it is being taken down; empty: it is to run."""
    held_since: float | None = None
    """Since when it is to go, and its nodes are not told so: gateways may have requests there. `None`: nobody waits."""
    ready_at: float | None = None
    """When it was first ready."""
    failed: bool = False
    """Whether it is being taken down because it failed."""
    launched: bool = False
    """Whether a node may have been told to start it: from then on, what is not there has gone."""


@frozen
class ReplicaFailure:
    """Why an attempt ended, as kept for people."""

    at: float
    generation: int
    node: str
    """Empty where it is no single node's fault."""
    rank: int
    kind: str
    """A `FailureKind`'s value, or what only the control plane can tell: `node lost`, `gone`, `not ready in time`."""
    reason: str
    exit: str = ""
    argv: tuple[str, ...] = ()
    engine_version: str | None = None
    log_tail: str = ""
    offer: str = ""
    """The key of the offer that was tried."""


class MoveKind(Enum):
    DRAIN = "drain"
    CHANGE = "change"
    """How it is to run was changed."""


@frozen
class Move:
    """A replica's replacement is brought up before the original goes."""

    kind: MoveKind
    why: str
    """`gpu-01 drains`."""
    began: float
    """Seconds since 1970."""
    targets: tuple[str, ...] = ()
    """Keys of the offers that were made when it began."""
    replacement: Assignment | None = None
    """`None` between two tries, and when there will be no other one."""
    steady_since: float | None = None
    """Since when the replacement is ready without a break."""
    tries: int = 0
    """Replacements that failed."""
    failed_on: tuple[str, ...] = ()
    """Nodes on which they did."""
    failure: ReplicaFailure | None = None
    """The last of these."""
    stop_first: bool = False
    """Whether the original was stopped before, as the operator allowed; the move lasts until it is ready again."""


@frozen
class ReplicaRecord:
    """All that is remembered of one replica."""

    id: str
    """`qwen3-235b/2`: model and ordinal."""
    model: str
    generation: int = 0
    """Of the last attempt; 0 before the first."""
    assignment: Assignment | None = None
    move: Move | None = None
    failures: int = 0
    """Attempts in a row that failed, or crashed soon after they were ready."""
    not_before: float = 0.0
    """No new attempt before this; seconds since 1970."""
    failed_on: Mapping[str, int] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By node, how many of these attempts failed there."""
    refused_by: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By `node offer-key`, the help digest of the engine that refused the command: not again before it changes."""
    first_failure: ReplicaFailure | None = None
    """Of these attempts."""
    last_ports: tuple[int, ...] = ()
    """Of the last attempt; the next one takes others."""
    last_failure: ReplicaFailure | None = None
    retired: bool = False
    """No longer wanted; kept for its generation, which never goes back."""

    @property
    def serving(self) -> Assignment | None:
        """The attempt that requests go to: the replacement, once the original is to go."""
        new = self.move.replacement if self.move is not None else None
        leaves = self.assignment is None or bool(self.assignment.stopping)
        return new if leaves and new is not None and not new.stopping else self.assignment

    @property
    def attempts(self) -> tuple[Assignment, ...]:
        """What of it is placed: the original, and its replacement."""
        original, move = self.assignment, self.move
        if move is None or move.replacement is None:
            return () if original is None else (original,)
        return (move.replacement,) if original is None else (original, move.replacement)

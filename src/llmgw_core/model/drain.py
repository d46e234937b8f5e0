"""What an operator asked for beside the catalog: nodes to be emptied, and changes to be carried through."""

from __future__ import annotations

from attrs import frozen


@frozen
class Drain:
    """The node takes nothing new, and what it has moves away, until somebody takes it back."""

    node: str
    by: str
    at: float
    """When it was asked for, or asked for again: moves that failed before that are tried anew. Seconds since 1970."""
    until: float | None = None
    """No move begins after this; seconds since 1970."""
    stop_first: bool = False
    """Whether an original may stop before its replacement starts, where there is no room for both."""
    max_parallel: int = 1
    """The most replicas of this node that move at the same time."""


@frozen
class Rollout:
    """A model's change, asked for again: what failed before is tried anew."""

    model: str
    at: float
    """Seconds since 1970."""
    stop_first: bool = False
    """As a drain's."""

"""What a node says of a shard that it was told to run. Absent from its list: nothing of it is left."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class ShardPhase(Enum):
    PREPARING = "preparing"
    """Being checked."""
    PREPARED = "prepared"
    """Checked, and nothing of it runs."""
    STARTING = "starting"
    """Its sidecars or its engine have been started."""
    READY = "ready"
    """The head serves, and what listens is ours; a worker runs (and listens, where the head needs that)."""
    UNREADY = "unready"
    STOPPING = "stopping"
    """It was told to stop, or it failed, and not all its processes are gone."""
    FAILED = "failed"
    """It failed, and all its processes are gone."""

    @property
    def holds_gpus(self) -> bool:
        """Whether processes of it may run."""
        return self not in (ShardPhase.PREPARING, ShardPhase.PREPARED, ShardPhase.FAILED)


@frozen
class ShardFailure:
    """Why a shard failed. It is there from the first moment on, while the rest of its processes are still ended."""

    kind: str
    """A `FailureKind`'s value."""
    reason: str
    exit: str = ""
    """`exit code 1`, `signal 9`; empty where nothing had ended."""
    log_tail: str = ""
    """The last lines of the output, oldest first."""
    at: float = 0.0
    """Seconds since 1970, by the node's clock."""


@frozen
class ShardStatus:
    replica: str
    generation: int
    rank: int
    phase: ShardPhase
    reason: str = ""
    """What it waits for or what is wrong, in one line."""
    failure: ShardFailure | None = None
    gpus: tuple[str, ...] = ()
    """What it was given."""
    port: int = 0
    pid: int = 0
    """Of the engine's front process; 0 while there is none."""
    argv: tuple[str, ...] = ()
    """The command line; empty before it was built. Nothing secret stands in it."""
    engine_version: str | None = None
    help_digest: str | None = None

    @property
    def id(self) -> str:
        return f"{self.replica}#{self.rank}"

"""What to ask a shard, and what its answers, its exit and its last words mean."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from llmgw_core.model.replica import Endpoint, Secret


@frozen
class Progress:
    """Which metrics tell that an engine is busy and that it moves, in Prometheus text.

    Values are summed over all label sets of a name.
    """

    path: str
    running: tuple[str, ...]
    """Gauges of requests that are being worked on."""
    counters: tuple[str, ...]
    """What grows, or changes, while work is being done."""


@frozen
class Probe:
    """What to ask a shard: GET `path`."""

    endpoint: Endpoint
    path: str
    timeout_s: float = 3.0
    """For one probe; an engine that generates a token for its health answer needs more."""
    progress: Progress | None = None
    api_key: Secret | None = None
    """Sent as a bearer token, where the engine guards what is asked."""


class ReplyKind(Enum):
    """The values are for people."""

    REFUSED = "nothing listens"
    TIMED_OUT = "no answer in time"
    BROKEN = "an answer that is not HTTP"
    ANSWERED = "answered"


@frozen
class Reply:
    """What came back from a probe."""

    kind: ReplyKind
    status: int = 0
    body: str = ""
    seen_ready: bool = False
    """Whether this shard was ready before."""


class Phase(Enum):
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    FAILED = "failed"


@frozen
class Health:
    phase: Phase
    reason: str = ""


@frozen
class Exit:
    """How a shard's front process ended."""

    code: int | None
    """The exit code; `None` when a signal ended it."""
    signal: int | None = None
    log_tail: str = ""
    """The last lines of its output, oldest first; standard output and error as they came."""
    asked: bool = False
    """Whether llmgw had asked it to stop."""
    node_rank: int = 0

    def __str__(self) -> str:
        return f"exit code {self.code}" if self.signal is None else f"signal {self.signal}"


class FailureKind(Enum):
    BAD_ARGUMENTS = "bad arguments"
    """The same command fails again for ever: do not retry before something changes."""
    BAD_CONFIGURATION = "bad configuration"
    PORT_IN_USE = "port in use"
    OUT_OF_MEMORY = "out of memory"
    WEIGHTS = "weights"
    """Missing, incomplete or corrupt."""
    PEER_LOST = "peer lost"
    """Another shard of the replica went first."""
    KILLED = "killed"
    CRASHED = "crashed"
    STALLED = "stalled"
    """It runs and does not move; the core's own finding, no exit means it."""


@frozen
class Failure:
    kind: FailureKind
    reason: str
    """One line, in the engine's own words where it has any."""

"""What every gateway is told: where a model's requests may go, and who may send them."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen


class Affinity(Enum):
    """Which requests should meet again at one replica, as long as it is not loaded more than others."""

    NONE = "none"
    SESSION = "session"
    """Those of one session: the header `x-session-id`, or the body's `prompt_cache_key` or `user`."""
    PREFIX = "prefix"
    """Those whose messages, prompt or input begin alike: the engine has that beginning in its cache."""


@frozen
class Target:
    """A replica that takes requests."""

    replica: str
    """`qwen3-235b/2`."""
    generation: int
    address: str
    """Its head's node; an IP address."""
    port: int
    key: str = field(default="", repr=False)
    """What its engine asks for; empty where it asks for nothing."""


@frozen
class Absent:
    """A replica that is wanted and takes no requests."""

    replica: str
    state: str
    """As a `ReplicaState` says it: `starting`, `failed`; `unplaced` where it is pending and has no place."""
    reason: str = ""
    """`loading`, `needs 8 GPUs, 4 free`; empty where nothing is known."""
    since: float | None = None
    """Seconds since 1970, where how long it has been so says something."""


@frozen
class ModelRoute:
    """A model of the catalog."""

    name: str
    created: int = 0
    """When it was first applied, seconds since 1970."""
    aliases: tuple[str, ...] = ()
    """Other names that users may say; the engine is told `name`."""
    affinity: Affinity = Affinity.NONE
    context_length: int | None = None
    """Tokens, where its profiles state one; the least of them."""
    targets: tuple[Target, ...] = ()
    absent: tuple[Absent, ...] = ()


@frozen
class UserKey:
    """An API key, as it is kept: nobody could use this."""

    id: str
    """Stands in logs and metrics."""
    digest: str
    """SHA-256 of the whole key, in hex: a key is 256 random bits, and needs no slow hash."""
    name: str = ""
    expires_at: float | None = None
    """Seconds since 1970."""
    models: tuple[str, ...] = ()
    """Names, not aliases; empty: all."""
    requests_per_minute: int = 0
    """0: without limit."""
    concurrent: int = 0
    """Requests in flight; 0: without limit."""


@frozen
class RouteTable:
    """Everything that a gateway needs; each one is whole, and the last one said counts."""

    version: int
    models: tuple[ModelRoute, ...] = ()
    keys: tuple[UserKey, ...] = ()


@frozen
class Lingering:
    """Requests that a gateway still has at an attempt to which its table leads no more."""

    replica: str
    generation: int
    requests: int

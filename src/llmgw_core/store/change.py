"""What can be written: each change is a value, and a group of them is one transaction."""

from __future__ import annotations

from attrs import frozen


@frozen
class NodeConnected:
    """A node's link was accepted. Its stored reports of an earlier instance are numbered anew."""

    name: str
    role: str
    serial: str
    key_fingerprint: str
    until: float
    address: str
    instance: str
    now: float


@frozen
class CertificateSeen:
    """A certificate that counts under a name: of an operator who was let in, or one that was renewed."""

    name: str
    role: str
    serial: str
    until: float
    now: float


@frozen
class NodeReported:
    """A report with a number that is not higher than the stored one of the same instance changes nothing."""

    name: str
    instance: str
    number: int
    facts: str
    """JSON."""
    now: float


@frozen
class NodeLastSeen:
    name: str
    now: float


@frozen
class NodeRemoved:
    name: str


@frozen
class SerialRevoked:
    serial: str
    name: str
    by: str
    reason: str
    now: float


@frozen
class SerialUnrevoked:
    serial: str


@frozen
class EventHappened:
    kind: str
    node: str
    reason: str
    now: float


@frozen
class CatalogApplied:
    """From now on this is desired, and what was scaled by hand before is not."""

    name: str
    text: str
    by: str
    now: float


@frozen
class ModelScaled:
    model: str
    replicas: int


@frozen
class ReplicaChanged:
    id: str
    record: str
    """JSON."""


@frozen
class DrainAsked:
    """A node takes nothing new, and is emptied; asked again, with other terms."""

    node: str
    by: str
    now: float
    until: float | None
    stop_first: bool
    max_parallel: int


@frozen
class DrainEnded:
    node: str


@frozen
class RolloutAsked:
    """What failed of a model's change is to be tried anew."""

    model: str
    now: float
    stop_first: bool


@frozen
class OffersServed:
    """How a model's replicas ran before its change."""

    model: str
    offers: str
    """JSON."""


@frozen
class RolledBack:
    """The model is to run again as it did before its last change, until the next apply."""

    model: str


@frozen
class ModelCreated:
    """A model was applied; only the first time counts."""

    name: str
    now: float


@frozen
class GatewayConnected:
    name: str
    instance: str
    now: float


@frozen
class GatewayForgotten:
    """Nobody waits for it any more."""

    name: str
    instance: str


@frozen
class KeyCreated:
    """An API key of a user."""

    id: str
    name: str
    digest: str
    now: float
    by: str
    expires: float | None
    models: str
    """JSON."""
    rpm: int
    concurrent: int


@frozen
class KeyRevoked:
    id: str
    now: float


Change = (
    NodeConnected
    | CertificateSeen
    | NodeReported
    | NodeLastSeen
    | NodeRemoved
    | SerialRevoked
    | SerialUnrevoked
    | EventHappened
    | CatalogApplied
    | ModelScaled
    | ReplicaChanged
    | DrainAsked
    | DrainEnded
    | RolloutAsked
    | OffersServed
    | RolledBack
    | ModelCreated
    | GatewayConnected
    | GatewayForgotten
    | KeyCreated
    | KeyRevoked
)

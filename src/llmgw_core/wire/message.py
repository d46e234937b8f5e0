"""The whole vocabulary of the link: what each peer may say.

One JSON object a message; its `kind` is the class's name. Unknown kinds and unknown fields are tolerated, so that a
newer peer can say more; the protocol's number changes only when an old word changes its meaning.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from llmgw_core.model.launch import Offer, Order
from llmgw_core.model.node import NodeFacts
from llmgw_core.model.route import Lingering, RouteTable
from llmgw_core.model.shard import ShardStatus

PROTOCOL = 1
SPOKEN = (1,)
"""The protocols that this release understands."""
MESSAGE_LIMIT_BYTES = 4 * 1024 * 1024
ROUTES_LIMIT_BYTES = 16 * 1024 * 1024
"""Of what a gateway hears: a table is whole, and 2,000 replicas with 5,000 keys that name their models may be more."""


@frozen
class Hello:
    """The first message of every peer."""

    protocol: int
    name: str
    """Who the peer claims to be; its certificate must agree."""
    version: str = ""
    instance: str = ""
    """An agent's process, at random; its reports are numbered within it."""


@frozen
class Welcome:
    """The control plane's answer to a Hello."""

    protocol: int
    heartbeat_s: float
    acknowledged: int = 0
    """The last report of this instance that is stored."""


@frozen
class Refused:
    """The last message on a link: why the other side is not heard."""

    reason: str


@frozen
class Report:
    """All that an agent knows of its node, whenever it changed. The first one of a link is the snapshot."""

    number: int
    facts: NodeFacts


@frozen
class Acknowledged:
    """Reports up to this number are stored."""

    number: int


@frozen
class Heartbeat:
    number: int


@frozen
class HeartbeatSeen:
    number: int


@frozen
class CheckEngine:
    """Control plane to agent: run an engine-check now."""

    id: int
    engine: str


@frozen
class EngineChecked:
    """Agent to control plane. `report` is what `engine-check --json` prints; without one, `reason` says why."""

    id: int
    report: dict[str, Any] | None = None
    reason: str = ""


@frozen
class Offers:
    """Control plane to agent: all that may be asked of it. What it says of each is part of its facts."""

    offers: tuple[Offer, ...]


@frozen
class Ordered:
    """Control plane to agent. Orders are numbered anew on each link, from 1."""

    number: int
    order: Order


@frozen
class Running:
    """Agent to control plane: all its shards, whenever one changed, and after each order. Kept by nobody's disk."""

    heard: int
    """The number of the last order on this link that is in this list; 0 for none."""
    shards: tuple[ShardStatus, ...]


@frozen
class ReadLog:
    """Control plane to agent: a part of a shard's log."""

    id: int
    replica: str
    rank: int
    generation: int = 0
    """0: the latest."""
    first_failure: bool = False
    """The kept log of the first failure of a loop, in place of the latest."""
    cursor: str = ""
    """Go on after what an answer with this cursor gave; empty: from `lines` before the end."""
    lines: int = 100


@frozen
class LogRead:
    """Agent to control plane; `reason` says why there is no text."""

    id: int
    text: str = ""
    cursor: str = ""
    generation: int = 0
    reason: str = ""


@frozen
class Routes:
    """Control plane to gateway: the whole table, whenever it changed."""

    table: RouteTable


@frozen
class RoutesTaken:
    """Gateway to control plane: new requests go by this table only; said anew when a lingering attempt is free."""

    version: int
    lingering: tuple[Lingering, ...] = ()


@frozen
class Leaving:
    """Gateway to control plane, its last word: it has no requests any more, and takes none; nobody waits for it."""


@frozen
class RenewCertificate:
    """Agent or gateway to control plane: sign this request's public key (PEM) for the name that I have."""

    request_pem: str


@frozen
class CertificateRenewed:
    """`certificate_pem` is empty when the authority cannot be reached; `reason` says why."""

    certificate_pem: str = ""
    reason: str = ""


@frozen
class Ask:
    """An operator's question or order; `what` is one of the control plane's operations."""

    id: int
    what: str
    arguments: dict[str, Any]


@frozen
class Answer:
    id: int
    value: Any


@frozen
class Failed:
    """The operator's question could not be answered; one line, fit to be printed."""

    id: int
    reason: str


Message = (
    Hello
    | Welcome
    | Refused
    | Report
    | Acknowledged
    | Heartbeat
    | HeartbeatSeen
    | CheckEngine
    | EngineChecked
    | Offers
    | Ordered
    | Running
    | ReadLog
    | LogRead
    | Routes
    | RoutesTaken
    | Leaving
    | RenewCertificate
    | CertificateRenewed
    | Ask
    | Answer
    | Failed
)


@frozen
class Unknown:
    """A message of a kind that this release does not know. It is passed over."""

    kind: str

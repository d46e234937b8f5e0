"""How a gateway behaves: limits and times, in bytes and seconds."""

from __future__ import annotations

from attrs import frozen

GATEWAY_PORT = 8080


@frozen(kw_only=True)
class DataSettings:
    """What the path of a request goes by."""

    authenticates: bool = True
    """Whether users need a key."""
    body_bytes: int = 32 * 1024 * 1024
    bodies_bytes: int = 1024 * 1024 * 1024
    """Of all requests of a process together, as long as they are held."""
    head_s: float = 30.0
    """From a request's first byte to the end of its head."""
    idle_s: float = 75.0
    """A client's connection, between requests."""
    connect_s: float = 3.0
    silent_s: float = 30.0
    """So long no packet may come of a peer that should send one: then its machine is gone."""
    answer_s: float = 3600.0
    """From a request to the first byte of its answer: a long answer that is not streamed comes whole."""
    stall_s: float = 300.0
    """Between two bytes of an answer."""
    hold_s: float = 0.0
    """How long a request waits for a replica where none is ready; 0: it is refused at once."""
    held_requests: int = 1000
    """Per model."""
    retry_after_s: float = 5.0
    """What a client is told to wait where no replica is ready."""

"""A peer that has been identified, before it is let in."""

from __future__ import annotations

from attrs import frozen

from llmgw_core.model.identity import Identity
from llmgw_core.net.link import Link
from llmgw_core.wire.message import Hello

HELLO_CHARACTERS = 200
"""The longest name, release and instance."""
HELLO_S = 10.0
"""How long a peer may take to its first message."""


@frozen
class Visit:
    link: Link
    hello: Hello
    identity: Identity
    serial: str
    key: str
    """Fingerprint of the certificate's public key."""
    since: float
    """Begin of the certificate, seconds since 1970."""
    until: float
    """End of the certificate, seconds since 1970."""
    address: str

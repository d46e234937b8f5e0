"""Whether a node that calls is let in, and what becomes of the connection that it had.

In: who calls with which key, and the connection under that name, if there is one.  Out: a decision.  Pure.
Rules: the certificate has been verified before this; one name is one machine: a second one with another key waits until
the first has fallen silent; the same key is the same machine, and its newer connection replaces the older one.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Caller:
    name: str
    key_fingerprint: str
    address: str


@frozen
class Admitted:
    replaces: bool
    """Whether the older connection under the name is to be closed."""
    note: str = ""
    """Worth an event: the node came back with another key."""


@frozen
class NotAdmitted:
    reason: str


def admit(caller: Caller, known_key: str | None, connected: Caller | None, *, silent: bool) -> Admitted | NotAdmitted:
    """`known_key` is the key of the last visit, `connected` the live connection; `silent`: it missed its beats."""
    if connected is not None and connected.key_fingerprint != caller.key_fingerprint and not silent:
        return NotAdmitted(
            f"node {caller.name} refused: it is connected from {connected.address} with another key; two machines "
            f"claim one name ({connected.address} and {caller.address}); stop one, or give it a name of its own"
        )
    changed = known_key is not None and known_key != caller.key_fingerprint
    note = f"came from {caller.address} with a new key, as after onboarding again" if changed else ""
    return Admitted(replaces=connected is not None, note=note)

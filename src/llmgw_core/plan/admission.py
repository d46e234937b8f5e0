"""Whether a node that calls is let in, and what becomes of the connection that it had.

In: who calls with which key, and the connection under that name, if there is one.  Out: a decision.  Pure.
Rules: the certificate has been verified before this; one name is one agent: a second one, on another machine (another
key) or beside it (the same key, another process), waits until the first has ended or fallen silent, else each would
find that the other's engines are gone; of the same process the newer connection replaces the older one.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Caller:
    name: str
    key_fingerprint: str
    address: str
    instance: str = ""
    """Its process."""


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
    if connected is not None and not silent and _differ(caller, connected):
        return NotAdmitted(f"node {caller.name} refused: it is connected from {_tell_other(caller, connected)}")
    changed = known_key is not None and known_key != caller.key_fingerprint
    note = f"came from {caller.address} with a new key, as after onboarding again" if changed else ""
    return Admitted(replaces=connected is not None, note=note)


def _differ(one: Caller, other: Caller) -> bool:
    return (one.key_fingerprint, one.instance) != (other.key_fingerprint, other.instance)


def _tell_other(caller: Caller, connected: Caller) -> str:
    both = f"({connected.address} and {caller.address})"
    if connected.key_fingerprint != caller.key_fingerprint:
        return (
            f"{connected.address} with another key; two machines claim one name {both}; stop one, or give it a name of "
            "its own"
        )
    return (
        f"{connected.address} by another agent with the same certificate, and is heard: a second one on that machine, "
        f"or on a copy of it {both}; stop one"
    )


STORES_AT_ONCE = 10
STORES_PER_S = 1.0


@frozen
class Allowance:
    """How often something may still be done: `STORES_AT_ONCE` at once, `STORES_PER_S` in the long run."""

    left: float = STORES_AT_ONCE
    at: float = 0.0
    """Seconds since 1970."""

    def wait_s(self, now: float) -> float:
        """Until it may be done again."""
        return max(0.0, (1.0 - self._filled(now)) / STORES_PER_S)

    def taken(self, now: float) -> Allowance:
        return Allowance(max(0.0, self._filled(now) - 1.0), now)

    def _filled(self, now: float) -> float:
        if now < self.at:  # the clock was set back
            return STORES_AT_ONCE
        return min(STORES_AT_ONCE, self.left + (now - self.at) * STORES_PER_S)

"""What an engine's log says of the network between nodes.

In: a log.  Out: a hint for the failure's reason, or nothing.  Pure.
"""

from __future__ import annotations

import re

_HINTS = (
    (
        # The adapters cannot talk to each other: NCCL's maintainers call 12 a timeout.
        re.compile(r"^.*NET/IB ?: Got completion .*error 12\b.*$", re.MULTILINE),
        "the adapters of its nodes do not reach each other: check that they are on the one fabric that --fabric names",
    ),
    (
        re.compile(r"^.*NET/IB ?: Got async event ?: port error.*$", re.MULTILINE),
        "an InfiniBand port lost its link: check its cable and the switch",
    ),
    (
        re.compile(
            r"^.*(?:Gloo connectFullMesh failed.*remote=\[127\.|Using the loopback address as fallback).*$",
            re.MULTILINE,
        ),
        "a node gave its loopback address to the others: its host name must resolve, or name its interface",
    ),
)


def fabric_hint(log: str) -> str:
    """The first line that tells of a fault of the fabric, and what to look at; empty when none does."""
    for sign, hint in _HINTS:
        found = sign.search(log)
        if found:
            return f"{hint} ({found[0].strip()[:300]})"
    return ""

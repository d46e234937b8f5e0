"""The key that the engines of one attempt ask for.

In: what is random, a replica, its generation.  Out: 256 bits as text.  Pure.
Rules: equal seeds give equal keys, so that a pass may be repeated; of one key nobody learns the seed, nor another key.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode


def make_engine_key(seed: str, replica: str, generation: int) -> str:
    """Empty without a seed: then engines ask for nothing."""
    if not seed:
        return ""
    digest = hmac.digest(seed.encode(), f"{replica} {generation}".encode(), "sha256")
    return urlsafe_b64encode(digest).decode().rstrip("=")

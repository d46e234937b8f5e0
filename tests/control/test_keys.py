"""API keys of users: who may have one, what is kept of it, and when it ends."""

from __future__ import annotations

import json

from llmgw_core.control.keys import live_keys, next_end, state_of
from llmgw_core.model.route import UserKey
from llmgw_core.store.reading import StoredKey

NOW = 1_700_000_000.0


def a_key(id: str = "k1", expires: float | None = None, revoked: float | None = None) -> StoredKey:
    return StoredKey(id, "ci", "00" * 32, NOW - 60, "alice", expires, json.dumps(["m"]), 60, 4, revoked)


def test_a_key_is_live_until_it_is_revoked_or_its_end_has_come() -> None:
    states = [state_of(each, NOW) for each in (a_key(), a_key(expires=NOW + 1), a_key(expires=NOW), a_key(revoked=1.0))]
    assert states == ["live", "live", "expired", "revoked"]


def test_gateways_are_told_of_live_keys_only_and_never_of_a_key_itself() -> None:
    keys = [a_key(), a_key("k2", expires=NOW), a_key("k3", revoked=NOW)]
    assert live_keys(keys, NOW) == (UserKey("k1", "00" * 32, "ci", None, ("m",), 60, 4),)


def test_the_next_end_is_that_of_a_key_that_is_live() -> None:
    keys = [a_key(expires=NOW - 1), a_key(expires=NOW + 5), a_key(expires=NOW + 2, revoked=NOW), a_key()]
    assert next_end(keys, NOW) == NOW + 5
    assert next_end([], NOW) is None

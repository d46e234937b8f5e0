"""API keys of users: made, listed, revoked, and told to the gateways.

Rules: a key is shown once, to who made it, and only its SHA-256 is kept: it is 256 random bits, and needs no slow hash;
what is revoked or past its end is in no table any more; a name means one key that is not revoked.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from typing import Any

import attrs
from attrs import define, field

from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.plane import Plane
from llmgw_core.model.catalog import Catalog
from llmgw_core.model.route import UserKey
from llmgw_core.store.change import KeyCreated, KeyRevoked
from llmgw_core.store.reading import StoredKey
from llmgw_core.wire.facts import clipped, fitting
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, ROUTES_LIMIT_BYTES

PREFIX = "sk-llmgw-"
NAME_CHARACTERS = 64
MOST_MODELS = 100
"""That one key names."""
MOST_LIMIT = 1_000_000
MOST_SECONDS = 100 * 365 * 24 * 3600.0
KEYS_BYTES = ROUTES_LIMIT_BYTES // 2
"""Of all keys, as every gateway is told of them."""
LIST_BYTES = MESSAGE_LIMIT_BYTES // 2
_ID = re.compile(r"k[0-9a-f]{10}")


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def state_of(key: StoredKey, now: float) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.expires is not None and key.expires <= now else "live"


def live_keys(keys: Iterable[StoredKey], now: float) -> tuple[UserKey, ...]:
    """As gateways are told of them."""
    return tuple(_told(each) for each in keys if state_of(each, now) == "live")


def _told(key: StoredKey) -> UserKey:
    models = tuple(json.loads(key.models))
    return UserKey(key.id, key.digest, key.name, key.expires, models, key.rpm, key.concurrent)


def next_end(keys: Iterable[StoredKey], now: float) -> float | None:
    """When the next one expires; seconds since 1970."""
    ends = [each.expires for each in keys if each.revoked is None and each.expires is not None and each.expires > now]
    return min(ends, default=None)


async def create_key(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """A new key; what is answered has the key itself, and nobody ever says it again.

    `version`: of the table that has it.
    """
    key = PREFIX + secrets.token_urlsafe(32)
    made = _made(plane, operator, arguments, digest_of(key))
    size = sum(_told_bytes(each) for each in (*plane.keys.values(), made))
    if size > KEYS_BYTES:
        raise BadQuestion(f"the keys take {size} bytes, over {KEYS_BYTES}: revoke some, or let them name fewer models")
    change = KeyCreated(
        made.id, made.name, made.digest, made.created, made.by, made.expires, made.models, made.rpm, made.concurrent
    )
    plane.keys[made.id] = made  # its name is taken from now on, whoever asks meanwhile
    try:
        await plane.writer.write(change, plane.event("key created", "", f"{made.name} ({made.id}) by {operator}"))
    except BaseException:
        del plane.keys[made.id]
        raise
    return {**_shown(made, plane.now()), "version": publish_keys(plane), "key": key}


async def list_keys(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    """All that were ever made, the oldest first; of too many, the latest."""
    now = plane.now()
    return fitting([_shown(each, now) for each in plane.keys.values()], LIST_BYTES, last=True)


async def revoke_key(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """Refuse it from now on, at every gateway. `version`: of the table that tells them."""
    said = argument(arguments, "key", str, "")
    found = next((each for each in plane.keys.values() if each.revoked is None and said in (each.id, each.name)), None)
    if found is None:
        raise BadQuestion(f"no key {clipped(said, 80)!r} that is not revoked; `llmgw ctl keys list` shows all")
    now = plane.now()
    told = plane.event("key revoked", "", f"{found.name} ({found.id}) by {operator}")
    await plane.writer.write(KeyRevoked(found.id, now), told)
    plane.keys[found.id] = attrs.evolve(found, revoked=now)
    return {**_shown(plane.keys[found.id], now), "version": publish_keys(plane)}


def publish_keys(plane: Plane) -> int:
    """The version of the table that has them; 0 as long as there is none."""
    plane.routes.publish_keys(live_keys(plane.keys.values(), plane.now()))
    return plane.routes.version


def _made(plane: Plane, operator: str, arguments: Arguments, digest: str) -> StoredKey:
    now = plane.now()
    within_s = argument(arguments, "expires_s", float, 0.0)
    if not 0 <= within_s <= MOST_SECONDS:
        raise BadQuestion(f"expires: expected up to {MOST_SECONDS:g} s, got {within_s:g}")
    return StoredKey(
        id=f"k{secrets.token_hex(5)}",
        name=_name_argument(plane, arguments),
        digest=digest,
        created=now,
        by=operator,
        expires=now + within_s if within_s else None,
        models=json.dumps(_models_argument(plane.deployment.catalog or Catalog(), arguments)),
        rpm=_limit_argument(arguments, "rpm"),
        concurrent=_limit_argument(arguments, "concurrent"),
        revoked=None,
    )


def _name_argument(plane: Plane, arguments: Arguments) -> str:
    name = argument(arguments, "name", str, "")
    shown = repr(clipped(name, 80))
    if not name or not name.isprintable() or name != name.strip() or len(name) > NAME_CHARACTERS or _ID.fullmatch(name):
        rule = f"1 to {NAME_CHARACTERS} printable characters, without space at the ends, and not as an id"
        raise BadQuestion(f"{shown} cannot be the name of a key: it takes {rule}")
    if any(each.name == name and each.revoked is None for each in plane.keys.values()):
        raise BadQuestion(f"there is a key {shown} already; revoke it first, or choose another name")
    return name


def _models_argument(catalog: Catalog, arguments: Arguments) -> list[str]:
    """Names of models, also where an alias was said."""
    said = argument(arguments, "models", list, [])
    if len(said) > MOST_MODELS or not all(isinstance(each, str) and each for each in said):
        raise BadQuestion(f"models: expected at most {MOST_MODELS} names")
    aliases = {alias: name for name, model in catalog.models.items() for alias in model.aliases}
    models = list(dict.fromkeys(aliases.get(each, each) for each in said))
    unknown = [each for each in models if each not in catalog.models]
    if unknown and not argument(arguments, "force", bool, False):
        there = clipped(", ".join(sorted(catalog.models)) or "none", 500)
        named = clipped(", ".join(map(repr, unknown)), 200)
        raise BadQuestion(f"the catalog has no model {named} (there are: {there}); --force takes it nevertheless")
    return [clipped(each, 200) for each in models]


def _limit_argument(arguments: Arguments, name: str) -> int:
    value = argument(arguments, name, int, 0)
    if not 0 <= value <= MOST_LIMIT:
        raise BadQuestion(f"{name}: expected 0 to {MOST_LIMIT}, got {value}")
    return value


def _told_bytes(key: StoredKey) -> int:
    """About as much as it takes in a table."""
    return 0 if key.revoked is not None else 250 + 6 * len(key.name) + len(key.models)


def _shown(key: StoredKey, now: float) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "state": state_of(key, now),
        "created": key.created,
        "by": key.by,
        "expires": key.expires,
        "models": json.loads(key.models),
        "requests_per_minute": key.rpm,
        "concurrent": key.concurrent,
        "revoked": key.revoked,
    }


@define(eq=False)
class KeyWatch:
    """Lets keys that are past their end leave the table."""

    _at: float | None = field(default=None)

    def look(self, plane: Plane) -> None:
        """To be called again and again."""
        if self._at is not None and plane.now() >= self._at:
            publish_keys(plane)
        self._at = next_end(plane.keys.values(), plane.now())

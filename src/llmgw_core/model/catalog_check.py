"""What is wrong with a catalog whose every value is right by itself.

In: a catalog, and the profiles that its file names.  Out: mistakes with their paths. Pure.
Of a table with values that could not be read the rest is looked at too, but for what may follow from those values.
A profile that no model uses is no mistake: it may be there to be checked, or for tomorrow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from attrs import frozen

from llmgw_core.errors import ImpossibleReplica
from llmgw_core.model.catalog import Catalog, Model, Profile, Sidecar
from llmgw_core.model.origin import LLMGW
from llmgw_core.model.replica import Endpoint, ReplicaSpec, Slot

MOST_NAME = 200
_PORT_OF = re.compile(r"\{([A-Za-z0-9][A-Za-z0-9_-]*)\.port\}")

_ALONE = frozenset({"engine", "min_gpu_memory_mib", "env", "extra_args", "sidecars", "health", "engine_key"})
"""Values of a profile from which nothing follows for whether an engine could run it."""

Path = tuple[str | int, ...]
Unread = Mapping[Path, Collection[str]]
"""By table, its keys whose values could not be read, or that nobody knows."""


@frozen
class Mistake:
    path: Path
    said: str
    key: str | None = None
    """Of the table at `path`, where the mistake is that it is there."""

    @property
    def place(self) -> Path:
        """What stands on the mistake's line."""
        return self.path if self.key is None else (*self.path, self.key)


def find_mistakes(
    catalog: Catalog, profiles: Collection[str], unread: Unread = MappingProxyType({}), *, possible: bool
) -> Iterator[Mistake]:
    """`profiles`: all names that the file has, of profiles that cannot be read too; `possible`: whether all must be."""
    for name, model in catalog.models.items():
        at = ("models", name)
        yield from _bad_name(at, name)
        if "profiles" not in unread.get(at, ()):
            yield from _bad_profiles(name, model, profiles)
        yield from _bad_aliases(name, model, catalog)
    for name, profile in catalog.profiles.items():
        at = ("profiles", name)
        yield from _bad_name(at, name)
        yield from _bad_profile(at, profile, unread.get(at, ()), possible=possible)


def _bad_profile(at: Path, profile: Profile, unread: Collection[str], *, possible: bool) -> Iterator[Mistake]:
    if at[-1] == LLMGW:
        yield Mistake(at, "this name means llmgw itself; choose another")
    if profile.min_gpu_memory_mib and not profile.gpus_per_node and _ALONE.issuperset(unread):
        said = f"asks for {profile.min_gpu_memory_mib} MiB of each GPU, but gpus_per_node is 0"
        yield Mistake((*at, "min_gpu_memory_mib"), said)
    if "sidecars" not in unread:
        yield from _bad_placeholders(at, profile)
    if possible and _ALONE.issuperset(unread):
        yield from (Mistake(at, reason) for reason in _impossible(profile))


def _bad_name(at: Path, name: str) -> Iterator[Mistake]:
    """Names stand in messages, tables, addresses and in ids of replicas (`qwen3/2`) and of shards (`qwen3/2#1`)."""
    if not name or not name.isprintable():
        yield Mistake(at, "cannot be a name: it is empty or not printable")
    elif name != name.strip():
        yield Mistake(at, "cannot be a name: it begins or ends with a space")
    elif "#" in name:
        yield Mistake(at, "cannot be a name: # stands before the number of a shard")
    elif len(name) > MOST_NAME:
        yield Mistake(at, f"cannot be a name: it has {len(name)} characters, at most {MOST_NAME} are allowed")


def _bad_profiles(name: str, model: Model, profiles: Collection[str]) -> Iterator[Mistake]:
    known = ", ".join(sorted(profiles)) or "none"
    for index, profile in enumerate(model.profiles):
        at = ("models", name, "profiles", index)
        if profile not in profiles:
            yield Mistake(at, f"no profile {profile!r} (there are: {known})")
        elif profile in model.profiles[:index]:
            yield Mistake(at, f"{profile!r} is named twice")


def _bad_aliases(name: str, model: Model, catalog: Catalog) -> Iterator[Mistake]:
    """A name that users say leads to one model."""
    others = {alias: other for other, each in catalog.models.items() if other != name for alias in each.aliases}
    for index, alias in enumerate(model.aliases):
        at = ("models", name, "aliases", index)
        yield from _bad_name(at, alias)
        if alias in catalog.models:
            yield Mistake(at, f"{alias!r} is the name of a model")
        elif alias in others:
            yield Mistake(at, f"{alias!r} is an alias of {others[alias]!r} too")
        elif alias in model.aliases[:index]:
            yield Mistake(at, f"{alias!r} is named twice")


def _bad_placeholders(at: Path, profile: Profile) -> Iterator[Mistake]:
    texts = [((*at, "extra_args", index), text) for index, text in enumerate(profile.extra_args)]
    texts += [((*at, "env", key), text) for key, text in profile.env.items()]
    for name, sidecar in profile.sidecars.items():
        texts += _texts_of((*at, "sidecars", name), sidecar)
    ports = [name for name, sidecar in profile.sidecars.items() if sidecar.uses_port]
    for path, text in texts:
        for name in _PORT_OF.findall(text):
            if name not in ports:
                why = "that sidecar has no {port}" if name in profile.sidecars else f"no sidecar is called {name}"
                yield Mistake(path, f"{{{name}.port}} is the port of nothing: {why}")


def _texts_of(at: Path, sidecar: Sidecar) -> list[tuple[Path, str]]:
    texts: list[tuple[Path, str]] = [((*at, "command", index), text) for index, text in enumerate(sidecar.command)]
    texts += [((*at, "env", key), text) for key, text in sidecar.env.items()]
    return texts + ([] if sidecar.ready_file is None else [((*at, "ready_file"), sidecar.ready_file)])


def _impossible(profile: Profile) -> tuple[str, ...]:
    """Why no engine could run it, in stand-in places."""
    head = Endpoint("192.0.2.1", 19000) if profile.nodes > 1 else None
    try:
        ReplicaSpec(
            id="stand-in",
            engine=profile.engine,
            source="stand-in",
            served_name="stand-in",
            slots=tuple(_stand_in_slot(profile, rank) for rank in range(profile.nodes)),
            rendezvous=head,
            parallel=profile.parallel,
            settings=profile.settings,
            extra_args=profile.extra_args,
            extra_env=profile.env,
        )
    except ImpossibleReplica as error:
        return error.reasons
    return ()


def _stand_in_slot(profile: Profile, rank: int) -> Slot:
    gpus = tuple(f"GPU-{rank}-{index}" for index in range(profile.gpus_per_node))
    return Slot((profile.engine,), Endpoint("0.0.0.0", 18000), address="", directory="", gpus=gpus)

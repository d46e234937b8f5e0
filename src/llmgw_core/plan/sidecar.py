"""What a profile's sidecars are as commands, and what the profile says of their ports.

In: a profile, ports, the shard's directory.  Out: the same with every placeholder replaced.  Pure.
Rule: only what the catalog promises is replaced (`{port}`, `{directory}`, `{NAME.port}`); any other brace is the
operator's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from llmgw_core.model.catalog import Profile, Sidecar
from llmgw_core.model.replica import frozen_mapping

STAND_IN_PORT = 18999


def needed_ports(profile: Profile) -> tuple[str, ...]:
    """The names of the sidecars that take a port, in order."""
    return tuple(name for name, sidecar in profile.sidecars.items() if sidecar.uses_port)


def stand_in_ports(profile: Profile) -> dict[str, int]:
    """Made-up ports, for checking a command before any node is chosen."""
    return {name: STAND_IN_PORT - index for index, name in enumerate(needed_ports(profile))}


@frozen
class PlacedSidecar:
    """A sidecar with its own port and directory."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(converter=frozen_mapping, hash=False)
    port: int | None
    """Where it listens; `None`: nowhere."""
    ready_path: str | None
    ready_file: str | None
    ready_within_s: float


def placed_sidecar(name: str, sidecar: Sidecar, ports: Mapping[str, int], directory: str) -> PlacedSidecar:
    own = {**_named(ports), "{directory}": directory}
    if name in ports:
        own["{port}"] = str(ports[name])
    return PlacedSidecar(
        command=tuple(_replaced(word, own) for word in sidecar.command),
        env={key: _replaced(value, own) for key, value in sidecar.env.items()},
        port=ports.get(name),
        ready_path=sidecar.ready_path,
        ready_file=None if sidecar.ready_file is None else _replaced(sidecar.ready_file, own),
        ready_within_s=sidecar.ready_within_s,
    )


def placed_profile(profile: Profile, ports: Mapping[str, int], directory: str) -> Profile:
    """The profile as its engine is to see it."""
    own = {**_named(ports), "{directory}": directory}
    return evolve(
        profile,
        extra_args=tuple(_replaced(word, own) for word in profile.extra_args),
        env={key: _replaced(value, own) for key, value in profile.env.items()},
    )


def _named(ports: Mapping[str, int]) -> dict[str, str]:
    return {f"{{{name}.port}}": str(port) for name, port in ports.items()}


def _replaced(text: str, by: Mapping[str, str]) -> str:
    for placeholder, value in by.items():
        text = text.replace(placeholder, value)
    return text

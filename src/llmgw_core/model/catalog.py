"""What an operator writes in the catalog: models, and the named ways to run them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from attrs import Attribute, field, fields, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.replica import Parallel, Settings, frozen_mapping
from llmgw_core.model.route import Affinity

MOST_NODES = 1024
MOST_GPUS = 64
MOST_REPLICAS = 10_000
MOST_MEMORY_MIB = 16 * 1024 * 1024
MOST_SECONDS = 7 * 24 * 3600
MOST_LABEL = 200
"""Beyond these it is a typing mistake."""

# It names files, and stands in placeholders: `{NAME.port}`.
_SIDECAR_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class BadValue(ValueError):
    """A value that cannot be meant; `path`: where it is in the table that it was given for, empty: the table itself."""

    def __init__(self, path: tuple[str | int, ...], said: str) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {said}" if path else said)
        self.path = path
        self.said = said


def _between(least: int, most: int) -> Callable[[object, Attribute[int], int], None]:
    def check(_: object, attribute: Attribute[int], value: int) -> None:
        if not least <= value <= most:
            raise BadValue((attribute.name,), f"expected {least} to {most}, got {value}")

    return check


def _not_empty(_: object, attribute: Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    if not value:
        raise BadValue((attribute.name,), "expected at least one")


def _no_empty_text(_: object, attribute: Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    if "" in value:
        raise BadValue((attribute.name, value.index("")), "an empty argument")


def _said(_: object, attribute: Attribute[str], value: str) -> None:
    if not value:
        raise BadValue((attribute.name,), "is empty")


def _names_of_variables(_: object, attribute: Attribute[Mapping[str, str]], value: Mapping[str, str]) -> None:
    for name in value:
        if not name or "=" in name or "\0" in name:
            raise BadValue((attribute.name, name), f"{name!r} cannot be the name of a variable")


def _labels(_: object, attribute: Attribute[Mapping[str, str]], value: Mapping[str, str]) -> None:
    """They stand in tables, and are selected by `KEY=VALUE`."""
    for key, text in value.items():
        if not key or key != key.strip() or not key.isprintable() or set(key) & set("=,"):
            raise BadValue((attribute.name, key), f"{key!r} cannot be the name of a label")
        if text != text.strip() or not text.isprintable() or len(text) > MOST_LABEL or "," in text:
            said = (
                f"expected at most {MOST_LABEL} printable characters without comma or space at the ends, got {text!r}"
            )
            raise BadValue((attribute.name, key), said)


def _sidecar_names(_: object, attribute: Attribute[Mapping[str, object]], value: Mapping[str, object]) -> None:
    for name in value:
        if not _SIDECAR_NAME.fullmatch(name):
            rule = "1 to 63 letters, digits, - and _, a letter or digit first"
            raise BadValue((attribute.name, name), f"{name!r} cannot be the name of a sidecar: it takes {rule}")


def _a_while(_: object, attribute: Attribute[float], value: float) -> None:
    if not 0 < value <= MOST_SECONDS:
        said = f"expected seconds above 0, at most {MOST_SECONDS}, got {value:g}"
        raise BadValue((attribute.name,), said)


@frozen(kw_only=True)
class HealthTimings:
    """How long an engine may take, in seconds, and how often it is asked."""

    start_deadline_s: float = field(default=1800.0, validator=_a_while)
    """From its placing until the replica is ready."""
    probe_every_s: float = field(default=2.0, validator=_a_while)
    misses: int = field(default=3, validator=_between(1, 1000))
    """Probes in a row that must fail until a ready shard is unready."""
    in_flight_s: float = field(default=120.0, validator=_a_while)
    """How long requests in flight may take when the engine is to stop, before it is told to."""
    stall_s: float = field(default=120.0, validator=_a_while)
    """Without progress while requests run, or unready without a break: then it has failed."""


@frozen(kw_only=True)
class Sidecar:
    """A process that must be ready before the engine of the same shard starts.

    `{port}` in its command or environment is a fresh port of the node, `{directory}` the shard's own directory; the
    profile's `extra_args` and `env` may say `{NAME.port}` for a sidecar's port.
    """

    command: tuple[str, ...] = field(validator=[_not_empty, _no_empty_text])
    env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, validator=_names_of_variables, hash=False)
    ready_path: str | None = None
    """It is ready when GET of this on its port answers 200; without, when its port takes a connection."""
    ready_file: str | None = None
    """It is ready when this file is there; may begin with `{directory}`."""
    ready_within_s: float = field(default=60.0, validator=_a_while)

    def __attrs_post_init__(self) -> None:
        if not self.uses_port and self.ready_file is None:
            raise BadValue((), "cannot tell when it is ready: use {port} in its command or env, or name a ready_file")
        if self.ready_path is not None and not self.uses_port:
            raise BadValue(("ready_path",), "it has no port to be asked on: use {port} in its command or env")
        if self.ready_path is not None and not self.ready_path.startswith("/"):
            raise BadValue(("ready_path",), f"expected a path that begins with /, got {self.ready_path!r}")
        if self.ready_file is not None and not self.ready_file.startswith(("/", "{directory}")):
            said = f"expected a path that begins with / or {{directory}}, got {self.ready_file!r}"
            raise BadValue(("ready_file",), said)

    @property
    def uses_port(self) -> bool:
        return any("{port}" in text for text in (*self.command, *self.env.values()))


@frozen(kw_only=True)
class Profile(Settings):
    """A named way to run a model: the settings, and how it is divided over nodes."""

    engine: str = field(validator=_said)
    nodes: int = field(default=1, validator=_between(1, MOST_NODES))
    gpus_per_node: int = field(default=0, validator=_between(0, MOST_GPUS))
    min_gpu_memory_mib: int = field(default=0, validator=_between(0, MOST_MEMORY_MIB))
    """Of each of its GPUs; one whose memory is not known does not do."""
    tensor_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    pipeline_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    data_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    expert_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    extra_args: tuple[str, ...] = field(default=(), validator=_no_empty_text)
    env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, validator=_names_of_variables, hash=False)
    sidecars: Mapping[str, Sidecar] = field(
        factory=dict, converter=frozen_mapping, validator=_sidecar_names, hash=False
    )
    """By name, started in this order."""
    health: HealthTimings = HealthTimings()
    engine_key: bool = True
    """Whether its engine asks for a key that only gateways have, where it can."""

    @property
    def parallel(self) -> Parallel:
        return Parallel(self.tensor_parallel, self.pipeline_parallel, self.data_parallel, self.expert_parallel)

    @property
    def settings(self) -> Settings:
        return Settings(**{each.name: getattr(self, each.name) for each in fields(Settings)})


@frozen
class Model:
    """A model that is to be served."""

    source: str = field(validator=_said)
    """Where the weights are: a directory, a GGUF file or a hub name, as the engine takes it."""
    profiles: tuple[str, ...] = field(validator=_not_empty)
    """Names of profiles, the preferred first."""
    replicas: int = field(default=1, validator=_between(0, MOST_REPLICAS))
    labels: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, validator=_labels, hash=False)
    """The operator's own words; `ctl models` shows them and selects by them."""
    aliases: tuple[str, ...] = ()
    """Other names by which users may ask for it; its engines know only its own."""
    affinity: Affinity = Affinity.NONE
    """Which requests should meet again at one replica."""


@frozen
class Catalog:
    models: Mapping[str, Model] = field(factory=dict, converter=frozen_mapping, hash=False)
    profiles: Mapping[str, Profile] = field(factory=dict, converter=frozen_mapping, hash=False)

    def profile(self, name: str) -> Profile:
        """The profile of that name; raises where there is none."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise LlmgwError(f"the catalog has no profile {name!r} (there are: {known})")
        return self.profiles[name]

    def model_of(self, profile: str) -> tuple[str, Model] | None:
        """The first model that names the profile, with its name."""
        return next(((name, model) for name, model in self.models.items() if profile in model.profiles), None)

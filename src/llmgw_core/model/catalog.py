"""What an operator writes in the catalog: models, and the named ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import Attribute, field, fields, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.replica import Parallel, Settings, frozen_mapping

MOST_NODES = 1024
MOST_GPUS = 64
MOST_REPLICAS = 10_000
"""Beyond these it is a typing mistake."""


class BadValue(ValueError):
    """A field's value that cannot be meant. The text begins with the field as a path goes on: `.nodes: expected …`."""


def _between(least: int, most: int) -> Callable[[object, Attribute[int], int], None]:
    def check(_: object, attribute: Attribute[int], value: int) -> None:
        if not least <= value <= most:
            raise BadValue(f".{attribute.name}: expected {least} to {most}, got {value}")

    return check


def _not_empty(_: object, attribute: Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    if not value:
        raise BadValue(f".{attribute.name}: expected at least one")


def _no_empty_text(_: object, attribute: Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    if "" in value:
        raise BadValue(f".{attribute.name}[{value.index('')}]: an empty argument")


def _names_of_variables(_: object, attribute: Attribute[Mapping[str, str]], value: Mapping[str, str]) -> None:
    bad = [name for name in value if not name or "=" in name or "\0" in name]
    if bad:
        raise BadValue(f".{attribute.name}: {bad[0]!r} cannot be the name of a variable")


@frozen(kw_only=True)
class Profile(Settings):
    """A named way to run a model: the settings, and how it is divided over nodes."""

    engine: str
    nodes: int = field(default=1, validator=_between(1, MOST_NODES))
    gpus_per_node: int = field(default=0, validator=_between(0, MOST_GPUS))
    tensor_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    pipeline_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    data_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    expert_parallel: int = field(default=1, validator=_between(1, MOST_NODES * MOST_GPUS))
    extra_args: tuple[str, ...] = field(default=(), validator=_no_empty_text)
    env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, validator=_names_of_variables, hash=False)

    @property
    def parallel(self) -> Parallel:
        return Parallel(self.tensor_parallel, self.pipeline_parallel, self.data_parallel, self.expert_parallel)

    @property
    def settings(self) -> Settings:
        return Settings(**{each.name: getattr(self, each.name) for each in fields(Settings)})


@frozen
class Model:
    """A model that is to be served."""

    source: str
    """Where the weights are: a directory, a GGUF file or a hub name, as the engine takes it."""
    profiles: tuple[str, ...] = field(validator=_not_empty)
    """Names of profiles, the preferred first."""
    replicas: int = field(default=1, validator=_between(0, MOST_REPLICAS))


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

"""What an operator writes in the catalog: models, and the named ways to run them."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, fields, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.replica import Parallel, Settings, frozen_mapping


@frozen(kw_only=True)
class Profile(Settings):
    """A named way to run a model: the settings, and how it is divided over nodes."""

    engine: str
    nodes: int = 1
    gpus_per_node: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)

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
    profiles: tuple[str, ...]
    """Names of profiles, the preferred first."""
    replicas: int = 1


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

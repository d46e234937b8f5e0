"""What an operator writes in the catalog: models, and the named ways to run them."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from llmgw_core.model.replica import Parallel, Settings, Speculative, frozen_mapping


@frozen
class Profile:
    """A named way to run a model. A size or setting that is left out is the engine's own default."""

    engine: str
    nodes: int = 1
    gpus_per_node: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1
    context_length: int | None = None
    max_sequences: int | None = None
    gpu_memory_fraction: float | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    prefix_caching: bool | None = None
    chat_template: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    trust_remote_code: bool = False
    speculative: Speculative | None = None
    metrics: bool = True
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)

    @property
    def parallel(self) -> Parallel:
        return Parallel(self.tensor_parallel, self.pipeline_parallel, self.data_parallel, self.expert_parallel)

    @property
    def settings(self) -> Settings:
        return Settings(
            context_length=self.context_length,
            max_sequences=self.max_sequences,
            gpu_memory_fraction=self.gpu_memory_fraction,
            dtype=self.dtype,
            quantization=self.quantization,
            kv_cache_dtype=self.kv_cache_dtype,
            prefix_caching=self.prefix_caching,
            chat_template=self.chat_template,
            tool_call_parser=self.tool_call_parser,
            reasoning_parser=self.reasoning_parser,
            trust_remote_code=self.trust_remote_code,
            speculative=self.speculative,
            metrics=self.metrics,
        )


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

    def model_of(self, profile: str) -> tuple[str, Model] | None:
        """The first model that names the profile, with its name."""
        return next(((name, model) for name, model in self.models.items() if profile in model.profiles), None)

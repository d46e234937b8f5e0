"""A replica as it is to be launched: what to serve, how to divide it, and where each of its shards goes.

Valid once it exists: what no engine could run is refused at construction, with the numbers. What only one engine
cannot run is that plugin's `llmgw_refusals`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, final

import attrs
from attrs import field, frozen

from llmgw_core.errors import ImpossibleReplica


@final
class Secret:
    """A text that no repr, log line or message shows; `reveal()` gives it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return "Secret(…)"


@frozen
class Endpoint:
    """An address and a TCP port; written `10.0.0.1:8000`, or `[fd00::1]:8000` for IPv6."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def from_own_node(self) -> Endpoint:
        """How a program on the same node calls it: what listens on every address is called on the loopback one."""
        return Endpoint({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address), self.port)


@frozen
class Hca:
    """One InfiniBand port of one adapter, as NCCL names it: `mlx5_2:1`."""

    name: str
    port: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@frozen
class Parallel:
    """How a replica is divided. All ones: the engine divides it by itself, or not at all."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    @property
    def world(self) -> int:
        """Tensor × pipeline × data."""
        return self.tensor * self.pipeline * self.data


@frozen
class Speculative:
    """Speculative decoding. `method` is the engine's own word for it (`eagle3`, `ngram`, `draft-simple`)."""

    method: str
    draft_tokens: int
    draft_source: str | None = None


@frozen
class Settings:
    """How the engine serves the model. `None` everywhere means: what the engine does by default."""

    context_length: int | None = None
    """Tokens of one sequence, prompt and answer together."""
    max_sequences: int | None = None
    """Most sequences that run at the same time."""
    gpu_memory_fraction: float | None = None
    """Of each GPU's whole memory, in (0, 1]."""
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    prefix_caching: bool | None = None
    chat_template: str | None = None
    """A path on the node."""
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    trust_remote_code: bool = False
    speculative: Speculative | None = None
    metrics: bool = True


@frozen
class Slot:
    """The place of one shard on one node."""

    executable: tuple[str, ...]
    """The command that starts this node's program for this shard, before any argument: `("/opt/vllm/bin/vllm",)`."""
    listen: Endpoint
    """Where this shard's program listens: rank 0 serves the API there, a worker whatever it must open."""
    address: str
    """The node's own address, by which the other shards reach it."""
    directory: str
    """A directory of this shard alone, absolute; files of its command go there."""
    interface: str | None = None
    """The network interface that has `address`."""
    gpus: tuple[str, ...] = ()
    """UUIDs, in the order in which the engine is to see them."""
    hcas: tuple[Hca, ...] = ()


def frozen_mapping(mapping: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """A copy that cannot be changed."""
    return MappingProxyType(dict(mapping))


@frozen
class ReplicaSpec:
    """One complete serving copy of a model: `slots[0]` is the head's, the others are the workers'."""

    id: str
    """`qwen3-235b/2`: model and ordinal."""
    engine: str
    source: str
    """Where the weights are: a directory, a GGUF file or a hub name, as the engine takes it."""
    served_name: str
    slots: tuple[Slot, ...]
    rendezvous: Endpoint | None = None
    """The head's address and the dist-init port; needed from two nodes on."""
    parallel: Parallel = Parallel()
    settings: Settings = Settings()
    api_key: Secret | None = None
    extra_args: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)

    def __attrs_post_init__(self) -> None:
        reasons = tuple(_impossible(self))
        if reasons:
            raise ImpossibleReplica(self.id, reasons)

    @property
    def nodes(self) -> int:
        return len(self.slots)

    @property
    def shards(self) -> tuple[Shard, ...]:
        return tuple(Shard(self, rank) for rank in range(self.nodes))


@frozen
class Shard:
    """One engine process tree of a replica, on one node."""

    replica: ReplicaSpec
    node_rank: int

    @property
    def id(self) -> str:
        return f"{self.replica.id}#{self.node_rank}"

    @property
    def slot(self) -> Slot:
        return self.replica.slots[self.node_rank]

    @property
    def is_head(self) -> bool:
        return self.node_rank == 0


def _impossible(spec: ReplicaSpec) -> list[str]:
    if not spec.slots:
        return ["it has no slot to run in"]
    return [*_impossible_texts(spec), *_impossible_sizes(spec), *_impossible_places(spec), *_impossible_numbers(spec)]


def _impossible_texts(spec: ReplicaSpec) -> list[str]:
    named = {"engine": spec.engine, "source": spec.source, "served name": spec.served_name}
    missing = [f"its {name} is empty" for name, text in named.items() if not text]
    texts = [*named.values(), *spec.extra_args, *spec.extra_env, *spec.extra_env.values()]
    return missing + (
        ["a NUL byte cannot stand in an argument or in the environment"] if "\0" in "".join(texts) else []
    )


def _impossible_sizes(spec: ReplicaSpec) -> list[str]:
    parallel, nodes = spec.parallel, spec.nodes
    sizes = attrs.asdict(parallel)
    below = [f"{name} parallel size {size} is below 1" for name, size in sizes.items() if size < 1]
    if below:
        return below
    gpus = sum(len(slot.gpus) for slot in spec.slots)
    needed = parallel.tensor * parallel.pipeline
    found = []
    if parallel.world > 1 and parallel.world % nodes:
        found.append(
            f"tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data} = {parallel.world} "
            f"does not divide over {nodes} nodes"
        )
    if gpus and needed > gpus:
        found.append(f"tensor {parallel.tensor} x pipeline {parallel.pipeline} = {needed} exceeds its {gpus} GPUs")
    return found


def _impossible_places(spec: ReplicaSpec) -> list[str]:
    found = []
    counts = sorted({len(slot.gpus) for slot in spec.slots})
    if len(counts) > 1:
        found.append(f"its nodes have different numbers of GPUs: {counts}")
    gpus = [gpu for slot in spec.slots for gpu in slot.gpus]
    twice = sorted(gpu for gpu, count in Counter(gpus).items() if count > 1)
    if twice:
        found.append(f"GPUs are named twice: {', '.join(twice)}")
    if spec.nodes > 1 and spec.rendezvous is None:
        found.append(f"{spec.nodes} nodes need a rendezvous: the head's address and a dist-init port")
    ports = [slot.listen.port for slot in spec.slots] + ([spec.rendezvous.port] if spec.rendezvous else [])
    found += [f"port {port} is not between 1 and 65535" for port in ports if not 1 <= port <= 65535]
    if any(not slot.executable or not slot.executable[0] for slot in spec.slots):
        found.append("a slot has no executable")
    return found


def _impossible_numbers(spec: ReplicaSpec) -> list[str]:
    settings = spec.settings
    counts = {"context length": settings.context_length, "most concurrent sequences": settings.max_sequences}
    if settings.speculative:
        counts["draft tokens"] = settings.speculative.draft_tokens
    found = [f"{name} {count} is below 1" for name, count in counts.items() if count is not None and count < 1]
    fraction = settings.gpu_memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        found.append(f"GPU memory fraction {fraction} is not in (0, 1]")
    return found

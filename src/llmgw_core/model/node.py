"""What a node says about itself. `None` in a field is: not known; it is never zero, and never a guess."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.launch import OfferChecked
from llmgw_core.model.replica import Hca


@frozen
class Gpu:
    """One GPU as nvidia-smi prints it: `index` and `uuid` are kept, never renumbered; one of them is known."""

    index: int | None
    uuid: str | None
    """`None` where the driver gives none (Jetson)."""
    name: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    driver_version: str | None = None
    bus_id: str | None = None
    mig: bool | None = None
    """Whether it is divided (MIG): then it is not one whole GPU, and is offered to nobody."""
    trouble: str = ""
    """What nvidia-smi says in the place of a value ("GPU requires reset"); empty when it says nothing such."""


class Found(Enum):
    """The three outcomes of looking for hardware, never two."""

    SOME = "some"
    NONE = "none"
    FAILED = "failed"
    """It could not be told: see the reason."""


NOT_LOOKED_YET = "not looked at yet"
"""The reason of an agent that has just started."""


@frozen
class GpuReport:
    outcome: Found
    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    """Why it failed, or what nvidia-smi complained of beside the GPUs that it did list."""


@frozen
class IbPort:
    """One port of an adapter under /sys/class/infiniband."""

    hca: Hca
    state: str | None = None
    """`ACTIVE`, `DOWN`, `INIT`, … without its number."""
    physical_state: str | None = None
    link_layer: str | None = None
    """`InfiniBand` or `Ethernet` (RoCE, whatever its rate says)."""
    rate: str | None = None
    lid: int | None = None
    """The port's local id; unique within one fabric. `None` for none (0 on Ethernet)."""
    node_guid: str | None = None
    """`None` where the file is missing or all zeros, as for a virtual function that has none."""
    port_guid: str | None = None
    subnet_prefix: str | None = None
    """The upper half of gid 0, `fe80:0000:0000:0000` when nobody set another: then it proves nothing."""
    trouble: str = ""
    """Why it is not offered by default; empty for an ACTIVE InfiniBand port."""

    @property
    def usable(self) -> bool:
        return not self.trouble


@frozen
class IbReport:
    outcome: Found
    ports: tuple[IbPort, ...] = ()
    reason: str = ""


@frozen
class Fabric:
    """A node's part in a fabric that its operator stated."""

    name: str
    hcas: tuple[Hca, ...]
    picked: bool = False
    """Whether llmgw picked the adapters, because the operator named none."""
    trouble: str = ""
    """What speaks against it on this node (an adapter that is down or not there); empty when nothing does."""


@frozen
class Refutation:
    """What proves that a stated fabric is not one: it gets no replica over several nodes until somebody resolves it."""

    fabric: str
    nodes: tuple[str, ...]
    reason: str


@frozen
class EngineFound:
    """One engine of a node, and what engine-check says of it."""

    engine: str
    executable: str | None
    version: str | None = None
    help_digest: str | None = None
    """SHA-256 of the flags that its help documents, in hex: two nodes with the same one take the same commands."""
    outcome: str = "unchecked"
    """An `Outcome`'s value."""
    reason: str = ""
    """The first refused flag, or why it could not be checked; `NOT_LOOKED_YET` where nobody can say yet."""


class BadPorts(LlmgwError):
    """What is no range of ports."""


@frozen
class PortRange:
    """TCP ports from `first` to `last`, both included."""

    first: int
    last: int

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.first <= self.last <= 65535:
            raise BadPorts(f"ports {self}: expected FIRST-LAST between 1 and 65535")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def meets(self, other: PortRange) -> bool:
        return self.first <= other.last and other.first <= self.last


# Outside the range from which Linux takes ports for outgoing connections (32768 to 60999).
SERVE_PORTS = PortRange(18000, 18999)
RENDEZVOUS_PORTS = PortRange(19000, 19999)


@frozen
class NodeFacts:
    """All that an agent knows of its node, as one value: what differs from the last one is reported."""

    agent_version: str
    gpus: GpuReport
    infiniband: IbReport
    fabrics: tuple[Fabric, ...] = ()
    engines: tuple[EngineFound, ...] = ()
    serve_ports: PortRange = SERVE_PORTS
    """Where shards may listen."""
    rendezvous_ports: PortRange = RENDEZVOUS_PORTS
    """Where the shards of a replica may meet."""
    machine_id: str | None = None
    disk_free_mib: int | None = None
    refused_plugins: tuple[str, ...] = ()
    address: str = ""
    """By which the other nodes reach it; empty: not known."""
    interface: str | None = None
    """The one that has this address."""
    busy_ports: tuple[int, ...] = ()
    """Of its ranges, those at which something listens that is no shard of this agent."""
    offers: tuple[OfferChecked, ...] = ()
    """Its answer to each offer of the control plane."""
    strays: tuple[str, ...] = ()
    """Engines that nobody here knows, one line each; they are never stopped by themselves."""
    stray_gpus: tuple[str, ...] = ()
    """What these were started with; nobody else gets them."""

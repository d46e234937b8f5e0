"""What an agent is told by its operator: a TOML file, and flags that stand above it."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from attrs import field, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import check_name
from llmgw_core.model.node import RENDEZVOUS_PORTS, SERVE_PORTS, BadPorts, PortRange
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.net.call import Server, parse_server
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.plan.fabric_words import StatedFabric, parse_fabrics

_PORT_DIGITS = 5


@frozen(kw_only=True)
class AgentFile:
    """The file's keys; each flag of `llmgw agent` replaces one."""

    node: str
    server: str
    certificate: str
    key: str
    authority: str
    state: str = "/var/lib/llmgw/agent"
    nvidia_smi: str = "nvidia-smi"
    ib_root: str = "/sys/class/infiniband"
    machine_id: str = "/etc/machine-id"
    """The file that tells machines apart which were cloned from one image."""
    serve_ports: str = str(SERVE_PORTS)
    """Where engines may listen, `FIRST-LAST`."""
    rendezvous_ports: str = str(RENDEZVOUS_PORTS)
    """Where the shards of a replica over several nodes may meet, `FIRST-LAST`."""
    address: str = ""
    """By which the other nodes reach this one; empty: the one from which the control plane is called."""
    fabrics: tuple[str, ...] = ()
    """As `--fabric`: `ib-b`, or `ib-b:mlx5_2,mlx5_3`."""
    engines: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By program (`vllm`, `llama-server`), its path or command line."""


@frozen
class AgentSettings:
    """The same, understood."""

    node: str
    server: Server
    credentials: CredentialFiles
    state: Path
    nvidia_smi: str
    ib_root: Path
    machine_id: Path
    fabrics: tuple[StatedFabric, ...]
    serve_ports: PortRange = SERVE_PORTS
    rendezvous_ports: PortRange = RENDEZVOUS_PORTS
    address: str = ""
    programs: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)


def understand(file: AgentFile) -> AgentSettings:
    """Raises where something cannot be meant."""
    serve, rendezvous = parse_ports(file.serve_ports), parse_ports(file.rendezvous_ports)
    if serve.meets(rendezvous):
        raise BadPorts(f"the ports to serve at, {serve}, and those to meet at, {rendezvous}, overlap; keep them apart")
    return AgentSettings(
        node=check_name(file.node),
        server=parse_server(file.server),
        credentials=CredentialFiles(_path(file.certificate), _path(file.key), _path(file.authority)),
        state=_path(file.state),
        nvidia_smi=str(_path(file.nvidia_smi)),
        ib_root=_path(file.ib_root),
        machine_id=_path(file.machine_id),
        fabrics=parse_fabrics(file.fabrics),
        serve_ports=serve,
        rendezvous_ports=rendezvous,
        address=parse_address(file.address),
        programs=file.engines,
    )


def parse_address(text: str) -> str:
    """An IP address as it is usually written; shards are told it, so a name would be looked up on every node anew."""
    try:
        address = ip_address(text) if text else None
    except ValueError:
        raise LlmgwError(f"address {text!r}: expected an IP address of this node, for example 10.0.0.11") from None
    if address is not None and address.is_unspecified:
        raise LlmgwError(f"address {text!r}: expected the address by which other nodes reach this one")
    return str(address or "")


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise LlmgwError(f"{text!r} can be no file: it is empty, or has a NUL in it")
    return Path(text)


def parse_ports(text: str) -> PortRange:
    """From `FIRST-LAST`."""
    first, _, last = text.partition("-")
    if not all(each.isascii() and each.isdecimal() and len(each) <= _PORT_DIGITS for each in (first, last)):
        raise BadPorts(f"ports {text!r}: expected FIRST-LAST, for example {SERVE_PORTS}")
    return PortRange(int(first), int(last))

"""What an agent is told by its operator: a TOML file, and flags that stand above it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from llmgw_core.model.identity import check_name
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.net.call import Server, parse_server
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.plan.fabric_words import StatedFabric, parse_fabrics


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
    fabrics: tuple[StatedFabric, ...]
    programs: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)


def understand(file: AgentFile) -> AgentSettings:
    """Raises an error for each thing that cannot be meant."""
    return AgentSettings(
        node=check_name(file.node),
        server=parse_server(file.server),
        credentials=CredentialFiles(Path(file.certificate), Path(file.key), Path(file.authority)),
        state=Path(file.state),
        nvidia_smi=file.nvidia_smi,
        ib_root=Path(file.ib_root),
        fabrics=parse_fabrics(file.fabrics),
        programs=file.engines,
    )

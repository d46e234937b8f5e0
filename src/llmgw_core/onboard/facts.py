"""What was found on this host and on the machine.  Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen

from llmgw_core.model.replica import frozen_mapping


@frozen
class Release:
    """A file to be installed."""

    path: str
    sha256: str = ""
    size_bytes: int = 0
    platform: str = ""
    """`linux-amd64`, as its head says; empty: it says none."""
    trouble: str = ""
    given: bool = True
    """By `--binary`; else it is the file that runs."""


@frozen
class ServerSeen:
    """The certificate that the control plane shows to whoever asks."""

    names: tuple[str, ...] = ()
    """As `DNS:llmgw` and `IP:10.0.0.140`."""
    ours: bool = True
    """Whether this authority issued it."""
    fault: str = ""
    """What is wrong with its dates."""
    left: str = ""
    """`29 days`, where it is in the last third of its life."""
    trouble: str = ""
    """Why it could not be asked; then the rest says nothing."""


class Family(Enum):
    """How a machine is told to trust a root."""

    DEBIAN = "debian"
    REDHAT = "redhat"
    OTHER = "other"


@frozen(kw_only=True)
class Machine:
    """What the machine says of itself."""

    is_root: bool
    becomes_root: bool
    """It is root, or sudo asks for nothing."""
    sudo_said: str = ""
    hostname: str = ""
    system: str = ""
    architecture: str = ""
    """As `uname -m` has it."""
    os_name: str = ""
    family: Family = Family.OTHER
    has_systemd: bool = True
    python: str = ""
    """`python3 3.11`, of one that a release runs on; empty: there is none."""
    other_python: str = ""
    """Of one that is too old or too new."""
    clock_ahead_s: float = 0.0
    free_kib: Mapping[str, int] = field(factory=dict, converter=frozen_mapping, hash=False)
    """By directory."""
    closed: tuple[str, ...] = ()
    """Directories that root cannot write to."""
    adapters: frozenset[str] = frozenset()
    """Of InfiniBand, in the tree that the request names."""
    tools: frozenset[str] = frozenset()
    digests: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """SHA-256 of the files that are there."""
    settings: str | None = None
    """The text of its agent.toml."""
    certificate: bytes | None = field(default=None, repr=False)
    beside: Mapping[str, bytes] = field(factory=dict, converter=frozen_mapping, hash=False, repr=False)
    """The certificates that lie where its own does, by path, and its own."""
    key_fits: bool = False
    key_mode: str = ""
    trusts_root: bool = False
    release_says: str = ""
    """What the installed llmgw says of its version."""
    enabled: bool = False
    active: bool = False
    needs_reload: bool = False
    unfinished: bool = False


@frozen(kw_only=True)
class Facts:
    """`None` of a part: it could not be read, and why stands in `troubles`."""

    troubles: tuple[str, ...] = ()
    authority_notes: tuple[str, ...] = ()
    known_nodes: frozenset[str] = frozenset()
    """To whom the authority has issued certificates."""
    online_from: str = ""
    """The address of the node of that name that is connected now, where an operator could ask."""
    server: ServerSeen | None = None
    release: Release | None = None
    machine: Machine | None = None

"""What was found on the hypervisor and in its cluster.  Pure values.

`None` means that it could not be read: why stands in `troubles`, and nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

MARK = "made by llmgw-provision-node"
"""How the description of each VM begins that this command made."""
UNFINISHED = "unfinished"
"""What else stands there until it is whole."""


@frozen
class Guest:
    """A VM or a container, somewhere in the cluster."""

    vmid: int
    kind: str
    """`qemu` or `lxc`."""
    node: str
    """The cluster's member that it is on."""
    name: str = ""
    config: Mapping[str, str] = field(factory=dict, hash=False)

    @property
    def shown(self) -> str:
        """`VM 144 (llmgw-node04) on pve2`."""
        named = f" ({self.name})" if self.name else ""
        return f"{'CT' if self.kind == 'lxc' else 'VM'} {self.vmid}{named} on {self.node}"

    @property
    def is_unfinished(self) -> bool:
        """Whether a run of this command makes it now, or was killed over it."""
        description = self.config.get("description", "")
        return description.startswith(MARK) and UNFINISHED in description


@frozen
class Storage:
    name: str
    kind: str
    """`dir`, `lvmthin`, `zfspool`, …"""
    content: tuple[str, ...]
    active: bool = True
    enabled: bool = True
    available_bytes: int | None = None
    shared: bool = False


@frozen
class PciDevice:
    address: str
    text: str = ""
    iommu_group: int = -1
    """-1: there is no IOMMU, or it is off."""


@frozen
class Image:
    """A file that shall become a disk."""

    trouble: str = ""
    """Why it is none, going on after its path: `is missing`."""
    virtual_bytes: int = 0
    sha256: str = ""
    """Empty: it was not read, since there was nothing to compare with."""
    expected_sha256: str = ""
    expected_by: str = ""
    """Who said so: `--image-sha256`, or the file beside it."""


@frozen
class AuthorizedKeys:
    path: str
    keys: tuple[str, ...] = ()
    no_keys: tuple[int, ...] = ()
    """The numbers of lines that are no keys."""
    trouble: str = ""


@frozen(kw_only=True)
class Facts:
    image: Image
    keys: AuthorizedKeys
    troubles: tuple[str, ...] = ()
    is_root: bool = True
    node: str = "localhost"
    """The hypervisor's name in its cluster."""
    version: tuple[int, ...] | None = None
    quorate: bool | None = None
    guests: tuple[Guest, ...] | None = None
    storages: tuple[Storage, ...] | None = None
    bridges: frozenset[str] | None = None
    pci: tuple[PciDevice, ...] | None = None
    gateways: tuple[str, ...] = ()
    """The hypervisor's own default gateways."""
    answers: bool = False
    """Whether somebody has the wanted address already."""
    binary_trouble: str = ""

"""What an operator asks for: one machine.  Pure values."""

from __future__ import annotations

import re
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from attrs import frozen

Interface = IPv4Interface | IPv6Interface

NO_GATEWAY = "none"
SEABIOS, OVMF = "seabios", "ovmf"
_SIZE = re.compile(r"(\d+)\s*([MGT])(?:i?B)?", re.IGNORECASE)
_POWERS = {"M": 20, "G": 30, "T": 40}
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?", re.IGNORECASE)


@frozen(kw_only=True)
class MachineRequest:
    """As it was said; what of it cannot be is told by `checks`, all at once."""

    vmid: int
    name: str
    """Host name, VM's name, node id and common name."""
    address: str
    """With the length of the network's prefix: `10.0.0.144/24`."""
    image: str
    """Path of a cloud image on the hypervisor."""
    image_sha256: str = ""
    gateway: str = ""
    """Empty: the hypervisor's own, when it lies in the same network. `none`: there is none."""
    storage: str = ""
    """Empty: the one that takes disks, `local-lvm` first."""
    snippets_storage: str = "local"
    cores: int = 4
    memory: str = "8G"
    disk_size: str = ""
    """Empty: as big as the image."""
    pci: tuple[str, ...] = ()
    bridge: str = "vmbr0"
    vlan: int | None = None
    dns: tuple[str, ...] = ()
    """Empty: as the hypervisor's."""
    user: str = "root"
    """Who the keys let in; another than root may do everything by sudo."""
    bios: str = ""
    """Empty: OVMF with PCI devices, since SeaBIOS finds no room for the memory of big GPUs; SeaBIOS without."""

    @property
    def firmware(self) -> str:
        return self.bios or (OVMF if self.pci else SEABIOS)

    @property
    def snippet(self) -> str:
        """The name of the file with the user-data."""
        return f"llmgw-{self.vmid}-{self.name}.yaml"

    @property
    def snippet_volume(self) -> str:
        return f"{self.snippets_storage}:snippets/{self.snippet}"


def parse_interface(text: str) -> Interface | None:
    """An address with its prefix; `None`: it is none, or has none."""
    try:
        return ip_interface(text) if "/" in text else None
    except ValueError:
        return None


def parse_size(text: str) -> int | None:
    """`200G`, `1.5T` is none: bytes of a size in whole M, G or T, each 1024 of the one before."""
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _POWERS[found[2].upper()] if found else None


def parse_pci(text: str) -> str | None:
    """`0000:41:00.0`, or `0000:41:00` for all functions of a device; the domain may be left out."""
    found = _PCI.fullmatch(text.strip())
    return f"{found[1] or '0000'}:{found[2]}{found[3] or ''}".lower() if found else None


def same_device(one: str, other: str) -> bool:
    """Whether two PCI addresses share a function; an address without one has all of them."""
    device, _, function = one.partition(".")
    other_device, _, other_function = other.partition(".")
    return device == other_device and (not function or not other_function or function == other_function)

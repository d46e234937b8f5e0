"""What speaks against making a machine of what the hypervisor has: storage, image, bridge, devices.  Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from llmgw_core.provision.facts import Facts, Guest, PciDevice, Storage
from llmgw_core.provision.request import OVMF, MachineRequest, parse_pci, parse_size, same_device

_DISKS, _SNIPPETS = "images", "snippets"
_PREFERRED = "local-lvm"
# pve-storage: the plugins whose plugindata lists snippets; the others hold volumes, not files.
_OF_FILES = frozenset(("dir", "nfs", "cifs", "cephfs", "btrfs", "glusterfs"))
_NO_IOMMU = -1
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


def chosen_storage(request: MachineRequest, facts: Facts) -> Storage | None:
    """The one that was named; else `local-lvm`, or the only one that takes disks; `None`: it is not there, or open."""
    storages = facts.storages or ()
    if request.storage:
        return _named(request.storage, storages)
    fitting = [each for each in storages if _DISKS in each.content and each.active and each.enabled]
    return _named(_PREFERRED, fitting) or (fitting[0] if len(fitting) == 1 else None)


def find_storage_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    if facts.storages is None:
        return
    storage = chosen_storage(request, facts)
    if storage is None:
        yield _no_storage(request, facts.storages)
        return
    if _DISKS not in storage.content:
        yield (
            f"storage {storage.name} takes no disks of VMs (it takes {_listed(storage.content)}): take another "
            f"--storage, or `{_allow(storage, _DISKS)}`"
        )
    yield from _find_away(storage)
    yield from _find_full(request, facts, storage)


def _no_storage(request: MachineRequest, storages: Iterable[Storage]) -> str:
    if request.storage:
        return f"--storage {request.storage}: there is none of that name here; {_takers(storages, _DISKS)}"
    return f"which storage takes the disk is not clear: give --storage; {_takers(storages, _DISKS)}"


def _find_away(storage: Storage) -> Iterator[str]:
    if not storage.enabled:
        yield f"storage {storage.name} is disabled: `pvesm set {storage.name} --disable 0`"
    elif not storage.active:
        yield f"storage {storage.name} is not active on this hypervisor: `pvesm status` says why"


def _find_full(request: MachineRequest, facts: Facts, storage: Storage) -> Iterator[str]:
    # A thin storage takes more than it has; the image itself must fit in any case.
    wanted, free = facts.image.virtual_bytes, storage.available_bytes
    if free is not None and wanted > free:
        yield (
            f"storage {storage.name} has {_giga(free)} free, and the image alone takes up to {_giga(wanted)}: "
            "make room, or take another --storage"
        )


def find_snippet_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    name = request.snippets_storage
    if facts.storages is None:
        return
    storage = _named(name, facts.storages)
    if storage is None:
        yield f"--snippets-storage {name}: there is none of that name here; {_takers(facts.storages, _SNIPPETS)}"
        return
    if _SNIPPETS not in storage.content:
        way = f"`{_allow(storage, _SNIPPETS)}`" if storage.kind in _OF_FILES else "take another --snippets-storage"
        yield f"storage {name} takes no snippets, where the user-data of cloud-init goes: {way}"
    yield from _find_away(storage)
    users = [guest for guest in facts.guests or () if request.snippet_volume in guest.config.get("cicustom", "")]
    if users and all(guest.vmid != request.vmid for guest in users):
        yield f"{request.snippet_volume} is read by {users[0].shown}: take another --vmid or --name"


def find_image_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    image, path = facts.image, request.image
    if not path.startswith("/") or "," in path:
        yield f"--image {path!r}: expected an absolute path without a comma, since `qm` reads it in a list"
    if image.trouble:
        yield f"--image {path} {image.trouble}"
        return
    expected = image.expected_sha256
    if request.image_sha256 and not _DIGEST.fullmatch(request.image_sha256):
        yield f"--image-sha256 {request.image_sha256!r}: expected 64 hexadecimal digits"
    elif expected and image.sha256 != expected:
        yield (
            f"--image {path} has SHA-256 {image.sha256[:16]}…, and {image.expected_by} says {expected[:16]}…: it is "
            "another file, or cut; download it again"
        )
    wanted = parse_size(request.disk_size) if request.disk_size else None
    if wanted is not None and wanted < image.virtual_bytes:
        yield f"--disk-size {request.disk_size} is less than the image's own {_giga(image.virtual_bytes)}: give more"


def find_bridge_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    if facts.bridges is not None and request.bridge not in facts.bridges:
        known = ", ".join(sorted(facts.bridges)) or "none"
        yield f"--bridge {request.bridge}: there is none of that name here (there are: {known})"
    if request.vlan is not None and not 1 <= request.vlan <= 4094:
        yield f"--vlan {request.vlan}: expected 1 to 4094"


def find_pci_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    if request.bios and request.pci and request.bios != OVMF:
        yield "--bios seabios does not go with --pci: it finds no room for the memory of big GPUs; leave it out"
    seen: list[str] = []
    for text in request.pci:
        address = parse_pci(text)
        if address is None:
            yield f"--pci {text!r}: expected an address like 0000:41:00.0 (`lspci -D` lists them)"
            continue
        if any(same_device(address, other) for other in seen):
            yield f"--pci {text}: that device is named twice"
        seen.append(address)
        yield from _find_device_problems(address, facts)


def _find_device_problems(address: str, facts: Facts) -> Iterator[str]:
    if facts.pci is not None:
        found = [device for device in facts.pci if same_device(address, device.address)]
        if not found:
            yield f"--pci {address}: this hypervisor has no such device (`lspci -D` lists them)"
        elif all(device.iommu_group == _NO_IOMMU for device in found):
            yield (
                f"--pci {address}: {_described(found[0])} is in no IOMMU group: switch the IOMMU on in the firmware "
                "and the kernel, and boot"
            )
    users = [guest.shown for guest in facts.guests or () if guest.node == facts.node and _has_device(guest, address)]
    if users:
        yield f"--pci {address} belongs to {', '.join(users)}: take another, or `qm set VMID --delete hostpciN` there"


def _has_device(guest: Guest, address: str) -> bool:
    lists = [value for key, value in guest.config.items() if key.startswith("hostpci")]
    words = [word.removeprefix("host=") for value in lists for word in value.replace(";", ",").split(",")]
    return any(same_device(address, other) for other in map(parse_pci, words) if other)


def _described(device: PciDevice) -> str:
    return device.text or device.address


def _named(name: str, storages: Iterable[Storage]) -> Storage | None:
    return next((each for each in storages if each.name == name), None)


def _allow(storage: Storage, content: str) -> str:
    """The exact command; what it takes already stays."""
    kept = [each for each in storage.content if each != "none"]
    return shlex.join(("pvesm", "set", storage.name, "--content", ",".join((*kept, content))))


def _takers(storages: Iterable[Storage], content: str) -> str:
    names = [each.name for each in storages if content in each.content]
    what = "disks" if content == _DISKS else "snippets"
    return f"those that take {what}: {', '.join(names) or 'none'}"


def _listed(content: Iterable[str]) -> str:
    return ", ".join(content) or "nothing"


def _giga(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"

"""What speaks against making a machine, all of it at once; and what a request leaves open, decided.

In: a request, facts.  Out: problems, each one line with the way out; or a choice.  Pure.
Rules: nothing is concluded from what could not be read; a VMID that exists is refused whatever is on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmgw_core.model.identity import BadName, check_name
from llmgw_core.provision.address_checks import chosen_gateway, find_address_problems
from llmgw_core.provision.facts import Facts, Guest
from llmgw_core.provision.host_checks import (
    chosen_storage,
    find_bridge_problems,
    find_image_problems,
    find_pci_problems,
    find_snippet_problems,
    find_storage_problems,
)
from llmgw_core.provision.request import MachineRequest, parse_interface, parse_size
from llmgw_core.provision.steps import Chosen, remove_command

Check = Callable[[MachineRequest, Facts], Iterator[str]]

_VMIDS = range(100, 1_000_000_000)
_LEAST_VERSION = (7, 2)  # Proxmox VE 7.2: disks can be made with import-from
_LEAST_MEMORY_BYTES = 512 << 20


def find_problems(request: MachineRequest, facts: Facts) -> tuple[str, ...]:
    return (*facts.troubles, *(problem for check in _CHECKS for problem in check(request, facts)))


def choose(request: MachineRequest, facts: Facts) -> Chosen:
    """Of a request that has no problems."""
    storage, interface = chosen_storage(request, facts), parse_interface(request.address)
    assert storage is not None  # noqa: S101 - otherwise it was a problem
    assert interface is not None  # noqa: S101
    grows = (parse_size(request.disk_size) or 0) > facts.image.virtual_bytes
    return Chosen(storage.name, interface, chosen_gateway(request, interface, facts), grows)


def find_notes(request: MachineRequest, facts: Facts) -> tuple[str, ...]:
    """What is worth knowing, and stops nothing."""
    notes = []
    if not facts.image.expected_sha256 and not facts.image.trouble:
        notes.append(
            f"{request.image} is not compared with a checksum: give --image-sha256, or put SHA256SUMS beside it"
        )
    if facts.keys.no_keys:
        lines = ", ".join(map(str, facts.keys.no_keys))
        notes.append(f"{facts.keys.path}: left out what is no key, in line {lines}")
    return tuple(notes)


def _find_hypervisor_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    if not facts.is_root:
        yield "Proxmox lets only root import an image from a path: run this as root"
    if facts.quorate is False:
        yield "the cluster has no quorum, and nothing can be changed: `pvecm status` says who is missing"
    if facts.version is not None and facts.version < _LEAST_VERSION:
        yield f"this is Proxmox VE {_dotted(facts.version)}, and importing needs {_dotted(_LEAST_VERSION)}: upgrade it"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _find_vmid_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    if request.vmid not in _VMIDS:
        yield f"--vmid {request.vmid}: Proxmox takes {_VMIDS[0]} to {_VMIDS[-1]}"
    for guest in facts.guests or ():
        if guest.vmid == request.vmid:
            yield _taken(guest)


def _taken(guest: Guest) -> str:
    if guest.is_unfinished:
        return (
            f"--vmid {guest.vmid}: {guest.shown} is unfinished: another run of this command makes it now, or one was "
            f"killed; if none runs on {guest.node}, remove it there by `{remove_command(guest.vmid)}`, and try again"
        )
    return (
        f"--vmid {guest.vmid} is taken by {guest.shown}: it is not touched; take another "
        "(`pvesh get /cluster/nextid` names a free one)"
    )


def _find_name_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    try:
        check_name(request.name)
    except BadName as error:
        yield f"--name {error}"
    for guest in facts.guests or ():
        if guest.name.partition(".")[0].lower() == request.name and guest.vmid != request.vmid:
            yield f"--name {request.name} is used by {guest.shown}: a name is one machine's only; take another"


def _find_size_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    if request.cores < 1:
        yield f"--cores {request.cores}: a machine has 1 or more"
    memory = parse_size(request.memory)
    if memory is None:
        yield f"--memory {request.memory!r}: expected a size like 64G"
    elif memory < _LEAST_MEMORY_BYTES:
        yield f"--memory {request.memory}: no cloud image starts with less than 512M"
    if request.disk_size and parse_size(request.disk_size) is None:
        yield f"--disk-size {request.disk_size!r}: expected a size like 200G"


def _find_user_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    name = request.user
    if (
        not (name.isascii() and name[:1].isalpha() and name.replace("-", "").replace("_", "").isalnum())
        or len(name) > 32
    ):
        yield f"--user {name!r}: expected a name of letters, digits, - and _, at most 32, a letter first"
    if facts.keys.trouble:
        yield f"--ssh-keys {facts.keys.path} {facts.keys.trouble}: nobody could log in; name a file with public keys"
    elif not facts.keys.keys:
        yield f"--ssh-keys {facts.keys.path} holds no key: nobody could log in; name a file with public keys"
    if facts.binary_trouble:
        yield f"--binary {facts.binary_trouble}"


_CHECKS: tuple[Check, ...] = (
    _find_hypervisor_problems,
    _find_vmid_problems,
    _find_name_problems,
    find_address_problems,
    _find_size_problems,
    find_storage_problems,
    find_snippet_problems,
    find_image_problems,
    find_bridge_problems,
    find_pci_problems,
    _find_user_problems,
)

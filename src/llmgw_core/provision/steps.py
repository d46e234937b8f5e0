"""The commands that make a machine, and those that undo it.

In: a request without problems, and what was chosen.  Out: values.  Pure.
Rules: the first command is quick and takes everything that may belong to one machine only (id, name, address, devices)
together with the mark of who makes it; the long ones come after it. No volume is ever named: Proxmox names them, and
differently on each kind of storage (F28).
"""

from __future__ import annotations

from attrs import frozen

from llmgw_core.provision.facts import MARK, UNFINISHED
from llmgw_core.provision.request import OVMF, Interface, MachineRequest, parse_pci, parse_size

Argv = tuple[str, ...]


@frozen
class Chosen:
    """What a request leaves open, decided."""

    storage: str
    interface: Interface
    gateway: str
    """Empty: none."""
    grows: bool
    """Whether the disk is to be bigger than the image."""


@frozen
class Steps:
    create: Argv
    """Takes the id; all after it may fail, and is undone."""
    fill: tuple[Argv, ...]
    start: Argv
    finish: Argv
    undo: tuple[Argv, ...]
    snippet_volume: str
    user_data: str

    @property
    def commands(self) -> tuple[Argv, ...]:
        return (self.create, *self.fill, self.start, self.finish)


def plan_steps(request: MachineRequest, chosen: Chosen, user_data: str, run: str) -> Steps:
    """`run` tells this run's machine from any other's."""
    vmid = str(request.vmid)
    return Steps(
        create=("qm", "create", vmid, *_identity(request, chosen, run), *_hardware(request)),
        fill=_fill(request, chosen),
        start=("qm", "start", vmid),
        finish=("qm", "set", vmid, "--description", MARK),
        undo=(
            ("qm", "stop", vmid, "--skiplock", "1"),
            ("qm", "destroy", vmid, "--purge", "1", "--destroy-unreferenced-disks", "1", "--skiplock", "1"),
        ),
        snippet_volume=request.snippet_volume,
        user_data=user_data,
    )


def unfinished_mark(run: str) -> str:
    return f"{MARK}, {UNFINISHED} ({run})"


def remove_command(vmid: int) -> str:
    """What an operator types to be rid of a machine."""
    return f"qm stop {vmid} && qm destroy {vmid} --purge 1"


def _identity(request: MachineRequest, chosen: Chosen, run: str) -> Argv:
    family = "" if chosen.interface.version == 4 else "6"
    gateway = f",gw{family}={chosen.gateway}" if chosen.gateway else ""
    tag = f",tag={request.vlan}" if request.vlan is not None else ""
    return (
        "--name",
        request.name,
        "--description",
        unfinished_mark(run),
        "--net0",
        f"virtio,bridge={request.bridge}{tag}",
        "--ipconfig0",
        f"ip{family}={chosen.interface}{gateway}",
        *(("--nameserver", " ".join(request.dns)) if request.dns else ()),
    )


def _hardware(request: MachineRequest) -> Argv:
    memory = parse_size(request.memory) or 0
    devices = [parse_pci(each) for each in request.pci]
    return (
        *("--ostype", "l26", "--machine", "q35", "--cpu", "host", "--cores", str(request.cores)),
        # All of it at once: a device that reads memory by itself needs it where it is.
        *("--memory", str(memory >> 20), "--balloon", "0"),
        *("--bios", request.firmware, "--scsihw", "virtio-scsi-pci"),
        # Cloud images write to a serial console; some do not boot without one.
        *("--serial0", "socket", "--vga", "serial0", "--agent", "enabled=1", "--onboot", "1"),
        *(word for n, each in enumerate(devices) for word in (f"--hostpci{n}", f"{each},pcie=1")),
    )


def _fill(request: MachineRequest, chosen: Chosen) -> tuple[Argv, ...]:
    change = ("qm", "set", str(request.vmid))
    disk = (*change, "--scsi0", f"{chosen.storage}:0,import-from={request.image},discard=on")
    rest = (*change, "--ide2", f"{chosen.storage}:cloudinit", "--cicustom", f"user={request.snippet_volume}")
    # Without keys that are enrolled before: unsigned drivers, as those of GPUs, would not be loaded.
    firmware = ("--efidisk0", f"{chosen.storage}:0,efitype=4m,pre-enrolled-keys=0") if request.firmware == OVMF else ()
    grow = ("qm", "disk", "resize", str(request.vmid), "scsi0", _resized(request))
    return (disk, (*rest, *firmware, "--boot", "order=scsi0"), *((grow,) if chosen.grows else ()))


def _resized(request: MachineRequest) -> str:
    return f"{(parse_size(request.disk_size) or 0) >> 20}M"

"""What Proxmox's commands say when they fail, with the way out.

In: a command's words and output.  Out: one line.  Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

# Each from qemu-server, pve-storage or pve-cluster; the first that fits counts.
_WAYS = (
    (
        r"(?:VM|CT) (\d+) already exists(?: on node '(?P<node>[^']+)')?",
        "the cluster has that id already, also when `qm status` here knows nothing of it, since VMs and containers of "
        "all members share one range; take another --vmid (`pvesh get /cluster/nextid` names a free one)",
    ),
    (
        r"no space left on device|not enough free space|insufficient (?:free|suitable)|out of space|ENOSPC"
        r"|data space .*(?:full|exhausted)",
        "the storage is full: make room, or take another --storage (`pvesm status` shows what is free)",
    ),
    (r"no quorum", "the cluster has no quorum, and nothing can be changed: `pvecm status` says who is missing"),
    (r"can't lock file .* got timeout", "another command works on that VM: wait for it, and run this again"),
    (
        r"PCI device '[^']+' already in use by VMID '(\d+)'",
        "that VM runs with the device: stop it, or name another --pci",
    ),
    (
        r"IOMMU not present|no IOMMU|Cannot bind .* to vfio",
        "the hypervisor cannot pass devices on: switch the IOMMU on in its firmware and kernel",
    ),
    (
        r"KVM virtualisation configured, but not available",
        "the hypervisor's CPU cannot run VMs: switch virtualisation on in its firmware",
    ),
    (
        r"volume '[^']+:snippets/[^']+' does not exist",
        "the file with the user-data has gone, or its storage is away",
    ),
    (r"please run as root|Only root can|not root", "run this as root"),
    (r"unable to parse (?:\S+ )?volume (?:file)?name", "that is a mistake of llmgw's: it names no volumes itself"),
)
_NOISE = re.compile(r"transferred .* of .*\(\d|^\s*$")
_MOST_CHARACTERS = 400


def explain_failure(argv: Sequence[str], code: int | None, output: str) -> str:
    """`qm start 144 failed (255): …; way out`; `None` as the code: it was not over in time."""
    said = last_words(output)
    ended = "was not over in time" if code is None else f"failed ({code})"
    told = f"{shown(argv)} {ended}" + (f": {said}" if said else "")
    way = next((way for pattern, way in _WAYS if re.search(pattern, output, re.IGNORECASE)), "")
    return f"{told}; {way}" if way else told


def last_words(output: str) -> str:
    """The line that says most: the last with an error in it, else the last one at all."""
    lines = [line.strip() for line in output.splitlines() if not _NOISE.search(line)]
    telling = [line for line in lines if re.search(r"error|unable|cannot|can't|fail|exist|denied", line, re.IGNORECASE)]
    chosen = (telling or lines or [""])[-1]
    return chosen if len(chosen) <= _MOST_CHARACTERS else chosen[: _MOST_CHARACTERS - 1] + "…"


def shown(argv: Sequence[str]) -> str:
    """A command as one would type it; a long one by its first words."""
    text = shlex.join(argv)
    return text if len(text) <= 100 else shlex.join(argv[:3]) + " …"

"""Reads what Proxmox's commands and files say.

In: texts.  Out: facts; `ValueError` where a text is not what that command prints.  Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from llmgw_core.provision.facts import Guest, PciDevice, Storage

# pve-guest-common, AbstractConfig: `key: value`, comments on top are the description, `[NAME]` begins a snapshot.
_SETTING = re.compile(r"([a-z][a-z_]*\d*):\s*(.*)")
_CONFIG_FILE = re.compile(r"nodes/([^/]+)/(qemu-server|lxc)/(\d+)\.conf")


def parse_list(text: str) -> list[Mapping[str, Any]]:
    """What `pvesh get … --output-format json` prints of a list."""
    told = json.loads(text)
    if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
        raise ValueError("expected a list of objects")
    return told


def parse_object(text: str) -> Mapping[str, Any]:
    told = json.loads(text)
    if not isinstance(told, dict):
        raise ValueError("expected an object")
    return told


def parse_resources(text: str) -> tuple[Guest, ...]:
    """`pvesh get /cluster/resources --type vm`: VMs and containers of all members."""
    return tuple(
        Guest(int(each["vmid"]), str(each.get("type", "qemu")), str(each.get("node", "?")), str(each.get("name", "")))
        for each in parse_list(text)
        if "vmid" in each
    )


def parse_config_path(path: str) -> tuple[str, str, int] | None:
    """Member, kind and id, of a file's path below /etc/pve."""
    found = _CONFIG_FILE.fullmatch(path)
    return (found[1], "lxc" if found[2] == "lxc" else "qemu", int(found[3])) if found else None


def parse_guest_config(text: str) -> dict[str, str]:
    """A guest's settings as they are now, without its snapshots'."""
    settings: dict[str, str] = {}
    description = []
    for line in text.splitlines():
        if line.startswith("["):
            break
        if line.startswith("#"):
            description.append(unquote(line[1:]))
        elif found := _SETTING.fullmatch(line):
            settings.setdefault(found[1], found[2].strip())
    if description:
        settings["description"] = "\n".join(description)
    return settings


def merge_guests(
    listed: tuple[Guest, ...], configs: Mapping[tuple[str, str, int], Mapping[str, str]]
) -> tuple[Guest, ...]:
    """What the cluster lists and what lies in its files, each guest once: one of the two may be late."""
    found = {guest.vmid: guest for guest in listed}
    for (node, kind, vmid), config in configs.items():
        known = found.get(vmid)
        name = config.get("name", "") or config.get("hostname", "") or (known.name if known else "")
        found[vmid] = Guest(vmid, kind, node, name, config)
    return tuple(found[vmid] for vmid in sorted(found))


def parse_storages(text: str) -> tuple[Storage, ...]:
    """`pvesh get /nodes/localhost/storage`."""
    return tuple(
        Storage(
            name=str(each["storage"]),
            kind=str(each.get("type", "")),
            content=tuple(filter(None, str(each.get("content", "")).split(","))),
            active=bool(int(each.get("active", 1))),
            enabled=bool(int(each.get("enabled", 1))),
            available_bytes=int(each["avail"]) if each.get("active") and "avail" in each else None,
            shared=bool(int(each.get("shared", 0))),
        )
        for each in parse_list(text)
    )


def parse_bridges(text: str) -> frozenset[str]:
    """`pvesh get /nodes/localhost/network --type any_bridge`."""
    return frozenset(str(each["iface"]) for each in parse_list(text))


def parse_pci_devices(text: str) -> tuple[PciDevice, ...]:
    """`pvesh get /nodes/localhost/hardware/pci --pci-class-blacklist ""`."""
    return tuple(
        PciDevice(
            str(each["id"]).lower(),
            f"{each.get('vendor_name', '')} {each.get('device_name', '')}".strip(),
            int(each.get("iommugroup", -1)),
        )
        for each in parse_list(text)
    )


def parse_version(text: str) -> tuple[int, ...]:
    """`pvesh get /version`: `{"version": "8.2.4", …}`."""
    found = re.match(r"\d+(?:\.\d+)*", str(parse_object(text).get("version", "")))
    if not found:
        raise ValueError("it has no version")
    return tuple(map(int, found[0].split(".")))


def parse_quorate(text: str) -> bool | None:
    """`pvesh get /cluster/status`; `None`: there is no cluster, so that there is nothing to agree on."""
    stated = [each.get("quorate") for each in parse_list(text) if each.get("type") == "cluster"]
    return bool(int(stated[0] or 0)) if stated else None


def parse_local_name(text: str) -> str | None:
    """`pvesh get /cluster/status`: the member that this is."""
    return next((str(each["name"]) for each in parse_list(text) if each.get("local") and "name" in each), None)


def parse_gateways(text: str) -> tuple[str, ...]:
    """`ip -json route show default`."""
    return tuple(str(each["gateway"]) for each in parse_list(text or "[]") if "gateway" in each)

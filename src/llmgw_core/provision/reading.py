"""Gathers the facts: reads, and changes nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from attrs import define, field

from llmgw_core.errors import LlmgwError
from llmgw_core.provision import parsing
from llmgw_core.provision.commands import run, run_or_raise
from llmgw_core.provision.facts import AuthorizedKeys, Facts, Guest, Image
from llmgw_core.provision.keys import parse_authorized_keys
from llmgw_core.provision.request import MachineRequest, parse_interface
from llmgw_core.provision.user_data import MOST_BYTES

QUESTION_S = 60.0
PVE_ROOT = Path("/etc/pve")
_LOCAL = "/nodes/localhost"
# Else bridges are left out, and with them what joins the GPUs of one machine.
_ALL_CLASSES = ("--pci-class-blacklist", "")
_MOST_CONFIG_BYTES = 512 * 1024  # pmxcfs takes no bigger file

Read = TypeVar("Read")


@define
class _Questions:
    """Asks Proxmox; what it does not say becomes a trouble, once."""

    troubles: list[str] = field(factory=list)

    def ask(self, parse: Callable[[str], Read], path: str, *options: str) -> Read | None:
        argv = ("pvesh", "get", path, *options, "--output-format", "json")
        try:
            return parse(run_or_raise(argv, QUESTION_S).stdout)
        except LlmgwError as error:
            self._add(str(error))
        except (ValueError, LookupError, TypeError) as error:
            self._add(f"`{' '.join(argv)}` printed what is not understood ({error})")
        return None

    def _add(self, trouble: str) -> None:
        if "cannot run pvesh" in trouble:
            trouble = "there is no pvesh here: run this on the Proxmox hypervisor itself, as root"
        if trouble not in self.troubles:
            self.troubles.append(trouble)


def read_facts(
    request: MachineRequest, image: Image, keys: AuthorizedKeys, binary: Path | None, pve_root: Path = PVE_ROOT
) -> Facts:
    questions = _Questions()
    listed = questions.ask(parsing.parse_resources, "/cluster/resources", "--type", "vm")
    status = questions.ask(
        lambda text: (parsing.parse_quorate(text), parsing.parse_local_name(text)), "/cluster/status"
    )
    quorate, name = status or (None, None)
    return Facts(
        image=image,
        keys=keys,
        is_root=os.geteuid() == 0,
        node=name or socket.gethostname().partition(".")[0],
        version=questions.ask(parsing.parse_version, "/version"),
        quorate=quorate,
        guests=_all_guests(listed, read_configs(pve_root)),
        storages=questions.ask(parsing.parse_storages, f"{_LOCAL}/storage"),
        bridges=questions.ask(parsing.parse_bridges, f"{_LOCAL}/network", "--type", "any_bridge"),
        pci=questions.ask(parsing.parse_pci_devices, f"{_LOCAL}/hardware/pci", *_ALL_CLASSES) if request.pci else None,
        gateways=_read_gateways(),
        answers=_answers(request),
        binary_trouble=_why_no_binary(binary),
        troubles=tuple(questions.troubles),
    )


def read_keys(path: Path) -> AuthorizedKeys:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
        keys, no_keys = parse_authorized_keys(text)
    except OSError as error:
        return AuthorizedKeys(str(path), trouble=f"cannot be read ({error.strerror})")
    except UnicodeDecodeError:
        return AuthorizedKeys(str(path), trouble="is not text")
    if len(text) > MOST_BYTES:
        return AuthorizedKeys(str(path), trouble="is too long for a file of keys")
    return AuthorizedKeys(str(path), keys, no_keys)


def read_configs(pve_root: Path) -> dict[tuple[str, str, int], Mapping[str, str]]:
    """The settings of all guests of the cluster, from the file system that its members share."""
    configs: dict[tuple[str, str, int], Mapping[str, str]] = {}
    for path in sorted(pve_root.glob("nodes/*/*/*.conf")):
        place = parsing.parse_config_path(path.relative_to(pve_root).as_posix())
        if place is None:
            continue
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                configs[place] = parsing.parse_guest_config(file.read(_MOST_CONFIG_BYTES))
        except OSError:  # removed since it was listed; or not ours to read, which `pvesh` tells too
            continue
    return configs


def _all_guests(
    listed: tuple[Guest, ...] | None, configs: Mapping[tuple[str, str, int], Mapping[str, str]]
) -> tuple[Guest, ...] | None:
    return None if listed is None else parsing.merge_guests(listed, configs)


def _read_gateways() -> tuple[str, ...]:
    found: list[str] = []
    for family in ("-4", "-6"):
        try:
            ended = run(("ip", "-json", family, "route", "show", "default"), QUESTION_S)
            found += parsing.parse_gateways(ended.stdout) if ended.code == 0 else ()
        except (OSError, ValueError):
            continue
    return tuple(found)


def _answers(request: MachineRequest) -> bool:
    interface = parse_interface(request.address)
    if interface is None:
        return False
    try:
        return run(("ping", "-n", "-c", "2", "-W", "1", str(interface.ip)), QUESTION_S).code == 0
    except OSError:
        return False


def _why_no_binary(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            return "" if file.read(1) else f"{path} is empty: name a release's file"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"

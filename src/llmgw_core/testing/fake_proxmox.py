"""A Proxmox hypervisor for machines without one: `qm`, `pvesm`, `pvesh`, and `ping`, `ip` and `ssh` as they are there.

For tests. One program that keeps the cluster in a JSON file, writes guests' configurations where the real one has them,
prints what the real commands print (qemu-server 8, pve-storage 8), and fails as it is told. It needs no package, so
that each start takes 20 ms. What was called is a line each in `calls`.
"""

from __future__ import annotations

import fcntl
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = "pve"
GIB = 1 << 30
COMMANDS = ("qm", "pvesm", "pvesh", "ping", "ip", "ssh")
_DEAD = 255
_HOLD_S = 60.0

BEGINNING: dict[str, Any] = {
    "version": "8.2.4",
    "quorate": None,
    "guests": {},
    "storages": [
        {"storage": "local", "type": "dir", "content": "iso,vztmpl,backup,snippets", "active": 1, "enabled": 1}
        | {"avail": 80 * GIB, "shared": 0},
        {"storage": "local-lvm", "type": "lvmthin", "content": "rootdir,images", "active": 1, "enabled": 1}
        | {"avail": 800 * GIB, "shared": 0},
    ],
    "bridges": ["vmbr0"],
    "pci": [{"id": "0000:41:00.0", "vendor_name": "NVIDIA", "device_name": "H100", "iommugroup": 12}],
    "gateways": ["10.0.0.1"],
    "answering": [],
    "agent": True,
    "exec": "status: done\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHxh root@llmgw-node04\n",
    "exec_error": "",
    "faults": {},
    "volumes": [],
}
"""`faults`: by the first words of a command (`qm start`, `qm set --scsi0`), what it prints on standard error before it
ends with 255; `hang:SECONDS` lets it take that long, `hold` until there is a file `go`. `import` is what an import says
that fails half-way, and leaves its volume."""


class FakeProxmox:
    """The directory of one, and what a test asks of it."""

    def __init__(self, directory: Path, **state: Any) -> None:
        self.directory = directory
        self.pve_root, self.bin, self.disks = directory / "etc-pve", directory / "bin", directory / "vz"
        for each in (self.pve_root / f"nodes/{HERE}/qemu-server", self.bin, self.disks / "snippets"):
            each.mkdir(parents=True)
        for name in COMMANDS:
            program = self.bin / name
            words = f'{sys.executable} -IS {__file__} {directory} {name} "$@"'
            program.write_text(f"#!/bin/sh\nexec {words}\n")
            program.chmod(0o755)
        self.write({**json.loads(json.dumps(BEGINNING)), **state})

    @property
    def state(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.directory / "state.json").read_text())
        return told

    def write(self, state: dict[str, Any]) -> None:
        (self.directory / "state.json").write_text(json.dumps(state))
        _write_configs(self.directory, state)

    def change(self, **changes: Any) -> None:
        self.write({**self.state, **changes})

    @property
    def calls(self) -> list[list[str]]:
        path = self.directory / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def changes(self) -> list[list[str]]:
        """The calls that change something."""
        reading = (["pvesh"], ["pvesm", "path"], ["ping"], ["ip"], ["qm", "guest"])
        return [call for call in self.calls if not any(call[: len(each)] == each for each in reading)]


class Refused(Exception):
    """How a command of the fake ends that was not obeyed."""


@contextmanager
def _opened(directory: Path) -> Iterator[dict[str, Any]]:
    with (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads((directory / "state.json").read_text())
        yield state
        new = directory / "state.new"
        new.write_text(json.dumps(state))
        new.rename(directory / "state.json")
        _write_configs(directory, state)


def _write_configs(directory: Path, state: dict[str, Any]) -> None:
    root = directory / "etc-pve/nodes"
    for path in root.glob("*/*/*.conf"):
        if path.stem not in state["guests"]:
            path.unlink()
    for vmid, guest in state["guests"].items():
        folder = root / guest["node"] / ("lxc" if guest["kind"] == "lxc" else "qemu-server")
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}: {value}" for key, value in guest["config"].items() if key != "description"]
        description = [f"#{line}" for line in guest["config"].get("description", "").splitlines()]
        (folder / f"{vmid}.conf").write_text("\n".join((*description, *lines, "", "[before]", "net9: ip=9.9.9.9/8")))


def main(directory: Path, words: list[str]) -> int:
    with (directory / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    try:
        _fail_as_told(directory, words)
        {"qm": _qm, "pvesm": _pvesm, "pvesh": _pvesh, "ping": _ping, "ip": _ip, "ssh": _ssh}[words[0]](directory, words)
    except Refused as error:
        print(error, file=sys.stderr)
        return _DEAD
    return 0


def _fail_as_told(directory: Path, words: list[str]) -> None:
    faults = json.loads((directory / "state.json").read_text())["faults"]
    for beginning, fault in faults.items():
        if all(word in words for word in beginning.split()):
            if fault != "hold" and not fault.startswith("hang:"):
                raise Refused(fault)
            (directory / "hanging").touch()
            _wait(directory / "go", float(fault.partition(":")[2] or _HOLD_S))


def _wait(path: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def _qm(directory: Path, words: list[str]) -> None:
    if words[1] == "guest":
        _guest(directory, words)
        return
    vmid = words[3] if words[1] == "disk" else words[2]
    options = {key[2:]: value for key, value in pairwise(words) if key.startswith("--")}
    with _opened(directory) as state:
        if words[1] == "create":
            _create(state, vmid, options)
            return
        guest = state["guests"].get(vmid)
        if guest is None or guest["node"] != HERE:
            raise Refused(f"Configuration file 'nodes/{HERE}/qemu-server/{vmid}.conf' does not exist")
        if words[1] == "set":
            _set(directory, state, vmid, options)
        elif words[1] == "start":
            _start(directory, guest)
        elif words[1] == "stop":
            guest["running"] = False
        elif words[1] == "destroy":
            _destroy(state, vmid, options)


def _create(state: dict[str, Any], vmid: str, options: dict[str, str]) -> None:
    if vmid in state["guests"]:
        there = state["guests"][vmid]
        what = "CT" if there["kind"] == "lxc" else "VM"
        raise Refused(f"unable to create VM {vmid} - {what} {vmid} already exists on node '{there['node']}'")
    state["guests"][vmid] = {"kind": "qemu", "node": HERE, "running": False, "config": options}


def _set(directory: Path, state: dict[str, Any], vmid: str, options: dict[str, str]) -> None:
    config = state["guests"][vmid]["config"]
    print(f"update VM {vmid}: " + " ".join(f"-{key} {value}" for key, value in options.items()))
    for key, value in options.items():
        made = re.fullmatch(r"([^:]+):(?:0|cloudinit)(,.*)?", value)
        config[key] = _make_volume(directory, state, vmid, key, made) if made else value


def _make_volume(directory: Path, state: dict[str, Any], vmid: str, key: str, made: re.Match[str]) -> str:
    """F28: how a volume is named depends on the storage's kind."""
    storage = next((each for each in state["storages"] if each["storage"] == made[1]), None)
    if storage is None:
        raise Refused(f"storage '{made[1]}' does not exist")
    kind = "cloudinit" if "cloudinit" in made[0] else f"disk-{sum(f'vm-{vmid}-disk' in v for v in state['volumes'])}"
    if storage["type"] == "dir":
        volume = f"{made[1]}:{vmid}/vm-{vmid}-{kind}.raw"
        print(f"Formatting '/var/lib/vz/images/{vmid}/vm-{vmid}-{kind}.raw', fmt=raw size=3758096384 preallocation=off")
    else:
        volume = f"{made[1]}:vm-{vmid}-{kind}"
        print(f'  Logical volume "vm-{vmid}-{kind}" created.')
    state["volumes"].append(volume)
    if "import-from" in made[0]:
        _import(directory, state, made[0])
    print(f"{key}: successfully created disk '{volume},size=3584M'")
    return f"{volume},size=3584M"


def _import(directory: Path, state: dict[str, Any], value: str) -> None:
    print("transferred 0.0 B of 3.5 GiB (0.00%)", flush=True)
    fault = state["faults"].get("import", "")
    if fault:
        # The volume stays, as it does where the process is killed; the state is written although this fails.
        (directory / "state.json").write_text(json.dumps(state))
        source = value.partition("import-from=")[2].partition(",")[0]
        raise Refused(f"cannot import from '{source}' - copy failed: {fault}")
    print("transferred 3.5 GiB of 3.5 GiB (100.00%)")


def _start(directory: Path, guest: dict[str, Any]) -> None:
    snippet = guest["config"]["cicustom"].partition("snippets/")[2]
    if not (directory / "vz/snippets" / snippet).exists():
        raise Refused(f"volume 'local:snippets/{snippet}' does not exist")
    print("generating cloud-init ISO")
    guest["running"] = True


def _destroy(state: dict[str, Any], vmid: str, options: dict[str, str]) -> None:
    if state["guests"][vmid]["running"]:
        raise Refused(f"VM {vmid} is running - destroy failed")
    config = " ".join(state["guests"].pop(vmid)["config"].values())
    everything = options.get("destroy-unreferenced-disks") == "1"
    mine = [each for each in state["volumes"] if f"vm-{vmid}-" in each and (everything or each in config)]
    state["volumes"] = [each for each in state["volumes"] if each not in mine]
    for volume in mine:
        print(f'  Logical volume "{volume.partition(":")[2]}" successfully removed.')


def _guest(directory: Path, words: list[str]) -> None:
    state = json.loads((directory / "state.json").read_text())
    if not state["agent"]:
        raise Refused("QEMU guest agent is not running")
    if words[2] == "exec":
        if state["exec_error"]:
            raise Refused(state["exec_error"])
        print(json.dumps({"exitcode": 0, "exited": 1, "out-data": state["exec"]}, indent=3))


def _pvesm(directory: Path, words: list[str]) -> None:
    storage, _, name = words[2].partition(":")
    state = json.loads((directory / "state.json").read_text())
    if storage not in [each["storage"] for each in state["storages"]]:
        raise Refused(f"storage '{storage}' does not exist")
    print(directory / "vz" / name)


def _pvesh(directory: Path, words: list[str]) -> None:
    state, path = json.loads((directory / "state.json").read_text()), words[2]
    config = re.fullmatch(r"/nodes/localhost/qemu/(\d+)/config", path)
    if config:
        guest = state["guests"].get(config[1])
        if guest is None or guest["node"] != HERE:
            raise Refused(f"Configuration file 'nodes/{HERE}/qemu-server/{config[1]}.conf' does not exist")
        print(json.dumps(guest["config"]))
        return
    answers: dict[str, Any] = {
        "/version": {"release": state["version"][:3], "version": state["version"]},
        "/cluster/resources": [_resource(vmid, guest) for vmid, guest in state["guests"].items()],
        "/cluster/status": _status(state),
        "/nodes/localhost/storage": state["storages"],
        "/nodes/localhost/network": [{"iface": name, "type": "bridge"} for name in state["bridges"]],
        "/nodes/localhost/hardware/pci": state["pci"],
    }
    if path not in answers:
        raise Refused(f"No '{words[1]}' handler defined for '{path}'")
    print(json.dumps(answers[path]))


def _resource(vmid: str, guest: dict[str, Any]) -> dict[str, Any]:
    name = guest["config"].get("name") or guest["config"].get("hostname", "")
    return {"id": f"{guest['kind']}/{vmid}", "vmid": int(vmid), "type": guest["kind"], "node": guest["node"]} | (
        {"name": name, "status": "running" if guest["running"] else "stopped", "template": 0}
    )


def _status(state: dict[str, Any]) -> list[dict[str, Any]]:
    member = {"type": "node", "name": HERE, "local": 1, "online": 1, "id": f"node/{HERE}"}
    cluster = {"type": "cluster", "name": "lab", "id": "cluster", "nodes": 2, "quorate": state["quorate"]}
    return [member] if state["quorate"] is None else [cluster, member]


def _ping(directory: Path, words: list[str]) -> None:
    if words[-1] not in json.loads((directory / "state.json").read_text())["answering"]:
        raise Refused("")


def _ip(directory: Path, words: list[str]) -> None:
    gateways = json.loads((directory / "state.json").read_text())["gateways"] if "-4" in words else []
    print(json.dumps([{"dst": "default", "gateway": each, "dev": "vmbr0"} for each in gateways]))


def _ssh(directory: Path, words: list[str]) -> None:
    """Takes what is sent, and says a version."""
    (directory / "sent").write_bytes(sys.stdin.buffer.read())
    known = next(word.partition("=")[2] for word in words if word.startswith("UserKnownHostsFile="))
    (directory / "known_hosts").write_text(Path(known).read_text())
    print("llmgw 0.1.0")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

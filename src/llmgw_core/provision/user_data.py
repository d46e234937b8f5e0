"""The cloud-config that a new machine reads at its first boot.

In: what it shall be.  Out: a text that cloud-init reads.  Pure.
Rules: it is JSON, which every YAML reader reads, so that no key and no name can be more than a string; what JSON leaves
as it is and YAML does not (line separators, what is not printable) is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

CHANGED_MACHINE_ID = "/run/llmgw-machine-id-changed"
# Proxmox VE, QemuServer/Cloudinit.pm: "Cloud-Init sum of snippets too big (> 3 MiB)"
MOST_BYTES = 2 * 1024 * 1024

# YAML 1.1, 5.1 and 5.4: not printable, or a line break within a string; and halves of pairs.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")

# A pristine image has no machine-id, and systemd has just made one (in a VM from its UUID, which Proxmox makes anew for
# each). An image that was booted before has one that all its machines would share, and with it a DHCP client's
# identity (F31, F46). So it is made again in any case, and where that gives another, the machine boots once more.
_MACHINE_ID = f"""\
before=$(cat /etc/machine-id 2>/dev/null)
[ -L /var/lib/dbus/machine-id ] || rm -f /var/lib/dbus/machine-id
truncate -s 0 /etc/machine-id
systemd-machine-id-setup
[ "$before" = "$(cat /etc/machine-id)" ] || touch {CHANGED_MACHINE_ID}
"""


def render_user_data(*, name: str, user: str, keys: Sequence[str]) -> str:
    return "#cloud-config\n" + _as_yaml(_cloud_config(name, user, keys)) + "\n"


def _cloud_config(name: str, user: str, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "hostname": name,
        "fqdn": name,
        "preserve_hostname": False,
        "manage_etc_hosts": True,
        "disable_root": user != "root",
        "ssh_pwauth": False,
        "ssh_deletekeys": True,
        "users": [_user(user, keys)],
        "bootcmd": [["cloud-init-per", "instance", "llmgw-machine-id", "sh", "-c", _MACHINE_ID]],
        "package_update": True,
        "packages": ["qemu-guest-agent"],
        # Debian's unit is static: enabling it says so, and starting it is what counts.
        "runcmd": [["systemctl", "enable", "qemu-guest-agent"], ["systemctl", "start", "qemu-guest-agent"]],
        "power_state": {"mode": "reboot", "condition": ["test", "-e", CHANGED_MACHINE_ID]},
    }


def _user(user: str, keys: Sequence[str]) -> dict[str, Any]:
    if user == "root":
        return {"name": "root", "ssh_authorized_keys": list(keys)}
    return {
        "name": user,
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "lock_passwd": True,
        "ssh_authorized_keys": list(keys),
    }


def _as_yaml(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

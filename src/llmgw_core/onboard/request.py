"""What an operator asks for: one machine as a node.  Pure values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address

from attrs import field, frozen

from llmgw_core.model.replica import frozen_mapping
from llmgw_core.provision.awaiting import RELEASE

ETC = "/etc/llmgw"
SETTINGS = f"{ETC}/agent.toml"
UNIT_NAME = "llmgw-agent.service"
UNIT = f"/etc/systemd/system/{UNIT_NAME}"
IB_ROOT = "/sys/class/infiniband"
UNFINISHED = f"{ETC}/onboarding"
"""Lies there from the first change until the agent was started with all of them."""
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where a unit finds programs, whatever a login's PATH says."""
NO_FABRIC = "none"
SSH_PORT = 22

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?")
_PLAIN = re.compile(r"[0-9A-Za-z.:%_-]+")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def _is_address(text: str) -> bool:
    """IPv6 too, with the zone of a link-local one: `fe80::1%eth0`."""
    try:
        return bool(ip_address(text)) and _PLAIN.fullmatch(text) is not None
    except ValueError:
        return False


@frozen(kw_only=True)
class Login:
    """How ssh reaches the machine."""

    address: str
    user: str = "root"
    port: int = SSH_PORT
    identity: str = ""
    """A private key's file; empty: ssh's own choice."""

    @property
    def known_name(self) -> str:
        """As known_hosts files have it."""
        address = self.address.lower()
        return address if self.port == SSH_PORT else f"[{address}]:{self.port}"

    def problems(self) -> tuple[str, ...]:
        found = []
        if not (_HOST.fullmatch(self.address) or _is_address(self.address)):
            found.append(f"--addr {self.address!r}: expected an address or a host's name")
        if not _USER.fullmatch(self.user):
            found.append(f"--ssh-user {self.user!r}: expected a login's name")
        if not 1 <= self.port <= 65535:
            found.append(f"--ssh-port {self.port}: expected 1 to 65535")
        return tuple(found)


@frozen(kw_only=True)
class NodeRequest:
    """As it was said; what of it cannot be is told by `checks`, all at once."""

    node: str
    login: Login
    server: str
    fabrics: tuple[str, ...] = ()
    """Empty: as the machine's settings have it; `none`: none."""
    nvidia_smi: str = ""
    ib_root: str = ""
    engines: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    command: str = ""
    """An llmgw that is on the machine already; empty: the release."""
    new_certificate: bool = False
    complaints: tuple[str, ...] = ()
    """What is wrong with options that have no place here."""

    @property
    def adapter_tree(self) -> str:
        """Where its adapters are looked for, as far as the request says."""
        return self.ib_root or IB_ROOT

    @property
    def executable(self) -> str:
        return self.command or RELEASE

    @property
    def certificate(self) -> str:
        return f"{ETC}/{self.node}.crt"

    @property
    def key(self) -> str:
        return f"{ETC}/{self.node}.key"

    @property
    def authority(self) -> str:
        return f"{ETC}/ca.crt"

"""Who may be who: the roles that a certificate carries, and the names that a node may have."""

from __future__ import annotations

import re
from enum import Enum

from attrs import frozen

from llmgw_core.errors import LlmgwError

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Role(Enum):
    """What a certificate's holder may do."""

    NODE = "node"
    OPERATOR = "operator"
    GATEWAY = "gateway"
    SERVER = "server"


@frozen
class Identity:
    """A role and a name, as a certificate states them: `llmgw://node/llmgw-node04`."""

    role: Role
    name: str

    def __attrs_post_init__(self) -> None:
        check_name(self.name)

    def __str__(self) -> str:
        return f"llmgw://{self.role.value}/{self.name}"


class BadName(LlmgwError):
    """A name that cannot be a node id, nor any other identity's."""


def check_name(name: str) -> str:
    """`name`, when it is a DNS label in small letters: it names the host, the VM and the certificate, and files."""
    if not _LABEL.fullmatch(name):
        rule = "1 to 63 of a-z, 0-9 and -, a letter or digit at both ends"
        raise BadName(f"{name!r} cannot be a name of a node or of anybody else: it takes {rule}")
    return name

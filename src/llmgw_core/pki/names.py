"""The names and addresses that a server's certificate is valid for; pure.

In: what the operator wrote after --dns and --ip.  Out: `AlternativeNames`, where an address is never a DNS name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import BadName

Address = IPv4Address | IPv6Address

_HOST_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAX_HOST_NAME = 253


class BadAddress(LlmgwError):
    """An address that cannot stand in a certificate."""


@frozen
class AlternativeNames:
    """What clients may call a server."""

    dns: tuple[str, ...] = ()
    ips: tuple[Address, ...] = ()

    def __attrs_post_init__(self) -> None:
        for name in self.dns:
            check_host_name(name)

    def __bool__(self) -> bool:
        return bool(self.dns or self.ips)

    def __str__(self) -> str:
        return ", ".join([*(f"DNS:{name}" for name in self.dns), *(f"IP:{ip}" for ip in self.ips)])


def parse_names(dns: Iterable[str], ips: Iterable[str]) -> AlternativeNames:
    """Each once, in the order given; capitals of a DNS name become small letters."""
    names = dict.fromkeys(name.lower() for name in dns)
    return AlternativeNames(tuple(names), tuple(dict.fromkeys(_parse_ip(ip) for ip in ips)))


def check_host_name(name: str) -> str:
    """`name`, when it is a host name in small letters: DNS labels and dots, no wildcard, no address."""
    if _is_address(name):
        raise BadName(f"{name!r} is an IP address, not a DNS name: give it as --ip")
    labels = name.split(".")
    if len(name) > _MAX_HOST_NAME or labels[-1].isdigit() or not all(map(_HOST_LABEL.fullmatch, labels)):
        raise BadName(f"{name!r} is no DNS name: it takes labels of a-z, 0-9 and - between dots, at most 253 in all")
    return name


def _parse_ip(text: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError:
        raise BadAddress(f"{text!r} is no IP address: give a name as --dns") from None
    if isinstance(address, IPv6Address) and address.scope_id:
        raise BadAddress(
            f"{text!r} has a zone, which means something on one machine only: leave out %{address.scope_id}"
        )
    return address


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True

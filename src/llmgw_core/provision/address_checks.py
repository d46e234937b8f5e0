"""What speaks against a machine's address, gateway and name servers.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from llmgw_core.provision.facts import Facts, Guest
from llmgw_core.provision.request import NO_GATEWAY, Interface, MachineRequest, parse_interface

Address = IPv4Address | IPv6Address

# qemu-server: ipconfig0: ip=10.0.0.144/24,gw=10.0.0.1,ip6=…; pve-container: net0: name=eth0,bridge=…,ip=…,ip6=…
_STATED = re.compile(r"(?:^|,)ip6?=([^,]+)")


def find_address_problems(request: MachineRequest, facts: Facts) -> Iterator[str]:
    interface = parse_interface(request.address)
    if interface is None:
        yield f"--ip {request.address!r}: expected an address with its network's prefix, like 10.0.0.144/24"
    else:
        yield from _find_unusable(interface)
        yield from _find_in_use(interface, facts)
        yield from _find_gateway_problems(request, interface, facts)
    for server in request.dns:
        if _parse_address(server) is None:
            yield f"--dns {server!r}: expected an address"


def chosen_gateway(request: MachineRequest, interface: Interface, facts: Facts) -> str:
    """Empty: there is none, since that was said or since none fits."""
    if request.gateway:
        return "" if request.gateway == NO_GATEWAY else request.gateway
    return next((each for each in facts.gateways if _is_near(_parse_address(each), interface)), "")


def stated_addresses(guest: Guest) -> frozenset[Address]:
    """The addresses that a guest's configuration gives it."""
    texts = [
        text
        for key, value in guest.config.items()
        if re.fullmatch(r"(ipconfig|net)\d+", key)
        for text in _STATED.findall(value)
    ]
    return frozenset(each for each in (_parse_address(text.partition("/")[0]) for text in texts) if each)


def _parse_address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_near(address: Address | None, interface: Interface) -> bool:
    return address is not None and address in interface.network and address != interface.ip


def _is_on_link(address: Address | None, interface: Interface) -> bool:
    """IPv6 routers are called by their link-local address, which is in no network of the machine's."""
    return isinstance(address, IPv6Address) and interface.version == 6 and address.is_link_local


def _find_unusable(interface: Interface) -> Iterator[str]:
    network, address = interface.network, interface.ip
    most = network.max_prefixlen - 2
    if network.prefixlen <= most and address in (network.network_address, network.broadcast_address):
        yield f"--ip {interface}: that address is the network's own, or its broadcast; take another"
    if address.is_loopback or address.is_multicast or address.is_unspecified or address.is_link_local:
        yield f"--ip {interface}: no machine can be reached at that address; take another"


def _find_in_use(interface: Interface, facts: Facts) -> Iterator[str]:
    users = [guest.shown for guest in facts.guests or () if interface.ip in stated_addresses(guest)]
    if users:
        yield f"--ip {interface.ip} is the address of {', '.join(users)}; take another"
    elif facts.answers:
        yield f"--ip {interface.ip} answers already: some machine has it; take another"


def _find_gateway_problems(request: MachineRequest, interface: Interface, facts: Facts) -> Iterator[str]:
    said = request.gateway
    if said == NO_GATEWAY:
        return
    if not said and not chosen_gateway(request, interface, facts):
        yield (
            f"no gateway is known for {interface.network}: give --gateway ADDRESS, or `--gateway {NO_GATEWAY}` "
            "where packages come from that network itself"
        )
    elif said and _parse_address(said) is None:
        yield f"--gateway {said!r}: expected an address, or {NO_GATEWAY}"
    elif said and not (_is_near(_parse_address(said), interface) or _is_on_link(_parse_address(said), interface)):
        what = "the machine's own address" if ip_address(said) == interface.ip else f"not in {interface.network}"
        yield f"--gateway {said} is {what}: it must be another address of that network"

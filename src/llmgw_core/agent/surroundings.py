"""What of its machine concerns other nodes' shards: its address, ports that strangers hold, engines that nobody knows.

Rules: looking delays no heartbeat; what nobody here knows is told, never stopped.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import trio

from llmgw_core.agent.facts import Picture
from llmgw_core.agent.ports import listeners
from llmgw_core.agent.processes import open_sockets, read_variable
from llmgw_core.agent.settings import AgentSettings
from llmgw_core.agent.shards import Shards
from llmgw_core.model.node import PortRange
from llmgw_core.net.call import Server
from llmgw_core.plan.shard_tree import Process

LOOK_EVERY_S = 15.0


async def watch_surroundings(picture: Picture, settings: AgentSettings, shards: Shards) -> None:
    while True:
        address = settings.address or await own_address(settings.server) or picture.facts.address
        picture.change(address=address, interface=interface_of(address))
        markers = shards.markers()  # what ends while it is looked is no stray
        table = await shards.node.processes()
        own = shards.own_processes(table)
        ranges = (settings.serve_ports, settings.rendezvous_ports)
        busy = await trio.to_thread.run_sync(busy_ports, ranges, own, abandon_on_cancel=True)
        lent = shards.node.lent_ports
        strays = find_strays(table, own, markers | shards.markers())
        picture.change(
            busy_ports=tuple(sorted({*busy, *lent})),
            strays=tuple(describe_stray(marker, who) for marker, who in strays.items()),
            stray_gpus=held_gpus(each for who in strays.values() for each in who),
        )
        await trio.sleep(LOOK_EVERY_S)


async def own_address(server: Server) -> str:
    """The one from which this machine calls the control plane; empty where it cannot."""
    with suppress(OSError), trio.move_on_after(LOOK_EVERY_S):
        found = await trio.socket.getaddrinfo(server.host, server.port, type=socket.SOCK_DGRAM)
        for family, kind, protocol, _, address in found:
            with suppress(OSError), trio.socket.socket(family, kind, protocol) as probe:
                await probe.connect(address)  # sends nothing: it is UDP
                return str(probe.getsockname()[0]).partition("%")[0]
    return ""


def busy_ports(ranges: Collection[PortRange], own: Mapping[int, Process]) -> tuple[int, ...]:
    """Those at which something listens that is no shard of ours."""
    held = listeners()
    ports = {port: inodes for port, inodes in held.items() if any(each.first <= port <= each.last for each in ranges)}
    ours = open_sockets(own).keys() if ports else set()
    return tuple(sorted(port for port, inodes in ports.items() if inodes - ours))


def find_strays(
    table: Mapping[int, Process], own: Collection[int], markers: Collection[str]
) -> dict[str, list[Process]]:
    """Processes with a marker of this agent's that belong to no shard it knows, by marker."""
    strays: dict[str, list[Process]] = {}
    for pid, process in sorted(table.items()):
        if process.marker and process.marker not in markers and pid not in own and process.lives:
            strays.setdefault(process.marker, []).append(process)
    return dict(sorted(strays.items()))


def describe_stray(marker: str, processes: Sequence[Process]) -> str:
    more = f" and {len(processes) - 4} more" if len(processes) > 4 else ""
    return f"{marker}: {', '.join(map(str, processes[:4]))}{more}"


def held_gpus(processes: Iterable[Process]) -> tuple[str, ...]:
    """Those that they were started with."""
    found = (read_variable(each.pid, "CUDA_VISIBLE_DEVICES").split(",") for each in processes)
    return tuple(sorted({gpu for gpus in found for gpu in gpus if gpu}))


class _SocketAddress(ctypes.Structure):
    _fields_ = (("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26))


class _Interface(ctypes.Structure):
    """`struct ifaddrs` up to what is read of it; getifaddrs(3)."""


_Interface._fields_ = (
    ("next", ctypes.POINTER(_Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SocketAddress)),
)


def interface_of(address: str) -> str | None:
    """The one that has this address."""
    return next((name for name, its in _addresses() if its == address), None)


def _addresses() -> Iterator[tuple[str, str]]:
    library = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Interface)()
    if library.getifaddrs(ctypes.byref(first)):
        return
    try:
        each = first
        while ctypes.cast(each, ctypes.c_void_p).value:
            inner = each.contents
            known = ctypes.cast(inner.address, ctypes.c_void_p).value
            if known and (its := _text(inner.address.contents)):
                yield inner.name.decode("utf-8", "replace"), its
            each = inner.next
    finally:
        library.freeifaddrs(first)


def _text(address: _SocketAddress) -> str:
    data = bytes(address.data)
    if address.family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, data[2:6])
    if address.family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, data[6:22])
    return ""

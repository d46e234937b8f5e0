"""A network that can be cut, and a disk that is small. Both need root, and skip visibly without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import field, frozen

ROOT = os.geteuid() == 0
ENV = "/usr/bin/env"
"""Finds a program in PATH."""
NOWHERE = "02:00:00:00:00:99"
"""Frames to this address arrive and are for nobody: the way is cut, and no one is told."""


@frozen
class Network:
    """A hub for the control plane, and a wire to each node; all in namespaces of this test's own."""

    name: str
    nodes: Sequence[str]
    address: str = "10.231.0.1"
    _numbers: dict[str, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_numbers", {node: number for number, node in enumerate(self.nodes, 1)})

    def inside(self, where: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", f"{self.name}-{where}")

    def build(self) -> None:
        self._ip("netns", "add", f"{self.name}-hub")
        self._in("hub", "link", "set", "lo", "up")
        self._in("hub", "address", "add", f"{self.address}/32", "dev", "lo")
        for node, number in self._numbers.items():
            self._ip("netns", "add", f"{self.name}-{node}")
            peer = ("peer", "name", "eth0", "netns", f"{self.name}-{node}")
            self._in("hub", "link", "add", f"wire{number}", "type", "veth", *peer)
            self._in("hub", "address", "add", f"10.231.{number}.1/24", "dev", f"wire{number}")
            self._in("hub", "link", "set", f"wire{number}", "up")
            self._in(node, "link", "set", "lo", "up")
            self._in(node, "address", "add", f"10.231.{number}.2/24", "dev", "eth0")
            self._in(node, "link", "set", "eth0", "up")
            self._in(node, "route", "add", "default", "via", f"10.231.{number}.1")

    def cut_to_control(self, node: str) -> None:
        number = self._numbers[node]
        self._in(node, "neigh", "replace", f"10.231.{number}.1", "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0")

    def cut_from_control(self, node: str) -> None:
        number = self._numbers[node]
        wire = f"wire{number}"
        self._in("hub", "neigh", "replace", f"10.231.{number}.2", "lladdr", NOWHERE, "nud", "permanent", "dev", wire)

    def heal(self, node: str) -> None:
        number = self._numbers[node]
        self._in(node, "neigh", "flush", "all", "nud", "permanent")
        self._in("hub", "neigh", "flush", "dev", f"wire{number}", "nud", "permanent")

    def remove(self) -> None:
        for where in ("hub", *self.nodes):
            subprocess.run([ENV, "ip", "netns", "delete", f"{self.name}-{where}"], check=False, capture_output=True)

    def _in(self, where: str, *words: str) -> None:
        self._ip("-n", f"{self.name}-{where}", *words)

    def _ip(self, *words: str) -> None:
        subprocess.run([ENV, "ip", *words], check=True, capture_output=True)


@contextmanager
def running_network(nodes: Sequence[str]) -> Iterator[Network]:
    if not ROOT or shutil.which("ip") is None:
        pytest.skip("needs root and ip, to make a network that can be cut")
    made = Network(f"llmgw{os.getpid()}", nodes)
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"cannot make a network here: {error.stderr.decode()}")
        yield made
    finally:
        made.remove()


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    mounted = ROOT and subprocess.run([ENV, "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=False)
    if not mounted or mounted.returncode:
        pytest.skip("needs root, to mount a small disk")
    try:
        yield path
    finally:
        subprocess.run([ENV, "umount", "--lazy", path], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

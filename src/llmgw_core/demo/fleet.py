"""Four nodes on this machine: an authority, a control plane, and agents with GPUs and adapters that are made up.

What is started here are the commands of the README, as an operator types them. Everything lies in one directory.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from attrs import define, field, frozen

from llmgw_core.agent.family import kill
from llmgw_core.agent.node import agent_digest
from llmgw_core.agent.processes import read_processes
from llmgw_core.errors import LlmgwError
from llmgw_core.plan.shard_tree import ProcessId
from llmgw_core.testing.fake_infiniband import an_adapter, write_tree
from llmgw_core.testing.fake_nvidia_smi import Answer, fake_gpus, write_nvidia_smi
from llmgw_core.testing.ports import LARGE, claim, first_port, is_free

T = TypeVar("T")
LLMGW = str(Path(sys.executable).with_name("llmgw"))
HOST = "127.0.0.1"
GPUS = 4
PORTS = 50
"""Of each node, to serve at; the next hundred are to meet at. Before them come those of daemons."""
POLL_S = 0.1
END_S = 40.0


class DemoFailed(LlmgwError):
    """A step that was not seen."""


@frozen
class MadeUpNode:
    name: str
    fabric: str
    number: int


NODES = (
    MadeUpNode("gpu-01", "ib-a", 1),
    MadeUpNode("gpu-02", "ib-a", 2),
    MadeUpNode("gpu-03", "ib-b", 3),
    MadeUpNode("gpu-04", "ib-b", 4),
)


def wait_for(found: Callable[[], T | None], what: str, within_s: float) -> T:
    """What it gives, as soon as that is something; raises `DemoFailed` after the deadline."""
    end = time.monotonic() + within_s
    while not (seen := found()):
        if time.monotonic() > end:
            raise DemoFailed(f"not seen within {within_s:g} s: {what}")
        time.sleep(POLL_S)
    return seen


@define
class DemoFleet:
    directory: Path
    programs: Mapping[str, str] = field(factory=dict)
    """By program, its path, for engines that are not in PATH."""
    say: Callable[[str], None] = print
    port: int = 0
    gateway: str = ""
    """Where users call."""
    _guard: socket.socket = field(factory=socket.socket)
    """Of its ports."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(factory=dict)

    @property
    def context(self) -> Path:
        return self.directory / "context.toml"

    @property
    def server(self) -> str:
        return f"https://{HOST}:{self.port}"

    def make_authority(self) -> None:
        self._guard = claim(LARGE)
        first = first_port(self._guard)
        free = filter(is_free, range(first + 1, first + PORTS))
        self.port, self.gateway = next(free), f"{HOST}:{next(free)}"
        self._run("ca", "init", "--dir", self._path("ca"))
        self._issue("server", "control", "--ip", HOST)
        self._issue("operator", "you")
        for node in NODES:
            self._issue("node", node.name)
        identity = self._path("pki/you")
        self._run("ctl", "--context", str(self.context), "use", "--server", self.server, "--identity", identity)

    def _issue(self, role: str, name: str, *words: str) -> None:
        self._run("ca", "issue", role, name, *words, "--dir", self._path("ca"), "--out", self._path("pki"))

    def start(self) -> None:
        where = ("--identity", self._path("pki/control"), "--state", self._path("control"))
        # Beats and patience are shorter than by default, so that what happens is seen while one watches.
        pace = ("--heartbeat", "1", "--lost-after", "10", "--soak", "2")
        gateway = ("--gateway", self.gateway, "--gateway-no-auth")
        self._start("control", "control", *where, "--listen", f"{HOST}:{self.port}", *pace, *gateway)
        for node in NODES:
            self._start(node.name, "agent", "--config", str(self._write_agent(node)))

    def _write_agent(self, node: MadeUpNode) -> Path:
        home = self.directory / node.name
        home.mkdir(exist_ok=True)
        write_nvidia_smi(home / "nvidia-smi", Answer(fake_gpus(GPUS, node=node.name)))
        tree = {f"mlx5_{index}": an_adapter(2 * node.number + index) for index in range(2)}
        write_tree(home / "infiniband", tree)
        (home / "machine-id").write_text(f"{node.number:032x}\n", encoding="ascii")
        serve = first_port(self._guard) + PORTS * (3 * node.number + 1)
        lines = {
            "node": node.name,
            "server": self.server,
            "certificate": self._path(f"pki/{node.name}.crt"),
            "key": self._path(f"pki/{node.name}.key"),
            "authority": self._path("pki/ca.crt"),
            "state": str(home / "state"),
            "nvidia_smi": str(home / "nvidia-smi"),
            "ib_root": str(home / "infiniband"),
            "machine_id": str(home / "machine-id"),
            "serve_ports": f"{serve}-{serve + PORTS - 1}",
            "rendezvous_ports": f"{serve + PORTS}-{serve + 3 * PORTS - 1}",
        }
        text = "".join(f'{name} = "{value}"\n' for name, value in lines.items())
        programs = "".join(f'{name} = "{path}"\n' for name, path in self.programs.items())
        file = home / "agent.toml"
        file.write_text(f'{text}fabrics = ["{node.fabric}"]\n\n[engines]\n{programs}', encoding="utf-8")
        return file

    def _path(self, name: str) -> str:
        return str(self.directory / name)

    def _run(self, *words: str) -> None:
        done = subprocess.run([LLMGW, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoFailed(f"llmgw {' '.join(words)}: {done.stderr.strip()}")

    def _start(self, name: str, *words: str) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [LLMGW, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_with_our_commands(),
            )

    def check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                last = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-1:]
                raise DemoFailed(f"{name} has ended with {process.returncode}: {' '.join(last)}")

    @property
    def pids(self) -> Sequence[int]:
        return [process.pid for process in self._processes.values()]

    def end(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._kill_engines()
        self._guard.close()

    def _kill_engines(self) -> None:
        """What outlived everything else, as the control plane could not stop it any more, until nothing is left."""
        end = time.monotonic() + END_S
        while (left := [each for node in NODES for each in self._engines(node)]) and time.monotonic() < end:
            kill(left)
            time.sleep(POLL_S)

    def _engines(self, node: MadeUpNode) -> Iterator[ProcessId]:
        found = read_processes(agent_digest(self.directory / node.name / "state")).values()
        return (each.id for each in found if each.marker and each.lives)


def _with_our_commands() -> dict[str, str]:
    """Engines that were installed beside llmgw are found, whether or not its directory is in PATH."""
    return {**os.environ, "PATH": f"{Path(LLMGW).parent}:{os.environ.get('PATH', os.defpath)}"}

"""What all shards of a node share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import trio
from attrs import define, field

from llmgw_core.agent.housing import Housing
from llmgw_core.agent.inventory import Inventory
from llmgw_core.agent.ports import port_trouble
from llmgw_core.agent.processes import AGENT_VARIABLE, SHARD_VARIABLE, read_boot_id, read_processes
from llmgw_core.agent.shard_files import ShardFiles
from llmgw_core.agent.weights import Weights
from llmgw_core.engines import Engines
from llmgw_core.model.node import SERVE_PORTS, PortRange
from llmgw_core.plan.shard_tree import Process

# What systemd tells the agent about itself, and what would make a child believe that it is the agent.
_OWN_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "JOURNAL_STREAM", "MAINPID")
_OWN_BEGINNINGS = ("LLMGW_", "LISTEN_")


def agent_digest(state: Path) -> str:
    """Tells this agent's shards from those of another one on the same machine."""
    return hashlib.sha256(bytes(state.resolve())).hexdigest()[:16]


@define(eq=False)
class Node:
    engines: Engines
    inventory: Inventory
    files: ShardFiles
    housing: Housing
    agent: str
    """As `agent_digest` says."""
    weights: Weights
    environ: Mapping[str, str]
    serve_ports: PortRange = SERVE_PORTS
    boot_id: str = field(factory=read_boot_id)
    lent_ports: set[int] = field(factory=set)
    """Those that sidecars were given."""

    def now(self) -> float:
        """Seconds since 1970, for people."""
        return datetime.now(UTC).timestamp()  # noqa: TID251 - nothing is decided by it

    async def processes(self) -> dict[int, Process]:
        return await trio.to_thread.run_sync(read_processes, self.agent, abandon_on_cancel=True)

    def environment(self, marker: str) -> dict[str, str]:
        """The agent's own, without what is about the agent, with the shard's marker."""
        inherited = {
            name: value
            for name, value in self.environ.items()
            if name not in _OWN_VARIABLES and not name.startswith(_OWN_BEGINNINGS)
        }
        return {**inherited, **self.marks(marker)}

    def marks(self, marker: str) -> dict[str, str]:
        return {SHARD_VARIABLE: marker, AGENT_VARIABLE: self.agent}

    def lend_port(self, not_these: set[int]) -> int | None:
        """A free port of the range, the highest first: the control plane gives engines the lowest."""
        for port in range(self.serve_ports.last, self.serve_ports.first - 1, -1):
            if port not in self.lent_ports and port not in not_these and not port_trouble(port):
                self.lent_ports.add(port)
                return port
        return None

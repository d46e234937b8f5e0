"""Real processes: an authority, a control plane and agents, as an operator starts them; for what happens to machines.

Every wait has a deadline. What is started here ends with the block, with SIGKILL if it must be. The processes that
`made_fleet` runs in the test's own process are quicker to make; these can be killed, stopped, and put elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field

from llmgw_core.agent.family import kill
from llmgw_core.agent.node import agent_digest
from llmgw_core.agent.processes import read_processes
from llmgw_core.model.identity import Role
from llmgw_core.model.node import NOT_LOOKED_YET
from llmgw_core.net.call import Server
from llmgw_core.pki.authority import Authority
from llmgw_core.plan.candidate import NOT_ANSWERED, NOT_SAID
from llmgw_core.plan.shard_tree import Process
from llmgw_core.testing.fake_infiniband import an_adapter, write_tree
from llmgw_core.testing.fake_nvidia_smi import Answer, fake_gpus, write_nvidia_smi
from llmgw_core.testing.light_agent import LightAgent, facts_of_a_node, issue
from llmgw_core.testing.operator import Operator
from llmgw_core.testing.ports import LARGE, claim, first_port, is_free

LLMGW = str(Path(sys.executable).with_name("llmgw"))
DEADLINE_S = 90.0
"""For one wait; only a test that fails takes so long, however busy the machine is."""
POLL_S, ASK_S, COMMAND_S = 0.05, 0.1, 2.0
"""Between two looks, two questions, two commands: a command's start takes a core for half a second."""
END_S = 60.0
OUR_PATH = f"{Path(LLMGW).parent}:{os.environ.get('PATH', os.defpath)}"
"""With the engines that are installed beside llmgw."""
PORTS, SERVE_PORTS, AGENTS = 200, 50, 5
"""Of each agent's engines, at how many of these they serve, and how many agents have a block's ports."""
DAEMONS_PORTS = 100
"""In a block of ports are those of daemons, then those of agents."""
_SOON = re.compile(f"{NOT_ANSWERED}|{NOT_SAID}|not reported yet|not looked at|does not know the address|is suspect")
"""Why a node takes nothing at the moment, but will."""


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S, every_s: float = POLL_S) -> Any:
    """What the condition gives, as soon as that is something; an AssertionError after the deadline."""
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(every_s)
    return found


@define(eq=False)
class Daemon:
    """One process, and what it logs."""

    process: subprocess.Popen[bytes]
    log: Path

    def lines(self, pattern: str) -> list[str]:
        """Whole lines: the last one may be half written."""
        whole = self.log.read_text(errors="replace").rpartition("\n")[0]
        return [line for line in whole.splitlines() if re.search(pattern, line)]

    def wait_for(self, pattern: str, times: int = 1, deadline_s: float = DEADLINE_S) -> str:
        """The `times`-th line that has the pattern, as soon as it is there."""

        def found() -> list[str]:
            assert self.process.poll() is None or self.lines(pattern), f"it has ended:\n{self.log.read_text()}"
            return self.lines(pattern)[times - 1 : times]

        try:
            return str(wait_until(found, f"a line with {pattern!r}", deadline_s)[0])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()[-4000:]}") from None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut: no last word."""
        self.process.kill()
        self.process.wait(END_S)


@define(eq=False)
class Gateway:
    daemon: Daemon
    address: str
    """Where users call."""


@define(eq=False)
class Cluster:
    """An authority, its certificates, and what has been started."""

    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    heartbeat_s: float = 2.0
    lost_after_s: float = 60.0
    """Silence in which a busy machine keeps nobody; who waits for a loss says a shorter one."""
    outlook: Sequence[str] = ()
    """What the operator's commands run under."""
    born_days_ago: int = 0
    """The authority's age, so that certificates can be older than the test."""
    first_port: int = field(init=False)
    """Of the first agent's engines."""
    state: Path = field(init=False)
    authority: Authority = field(init=False)
    _operator: Operator = field(init=False)
    _blocks: list[socket.socket] = field(factory=list)
    """As long as the first port of a block is taken, the block is this cluster's."""
    _daemons_ports: Iterator[int] = field(init=False)
    _started: list[Daemon] = field(factory=list)
    _numbers: dict[str, int] = field(factory=dict)
    """Of the agents, by name."""
    _gateways: dict[str, str] = field(factory=dict)
    """Addresses, by name."""

    def __attrs_post_init__(self) -> None:
        self.state = self.directory / "state"
        self.authority = Authority.create(self.directory / "ca", _now() - timedelta(days=self.born_days_ago))
        self.pki.mkdir()
        issue(self.authority, self.pki, Role.SERVER, "control", [self.host])
        alice = issue(self.authority, self.pki, Role.OPERATOR, "alice")
        begins = self._block(0)
        self.first_port = begins + DAEMONS_PORTS
        self._daemons_ports = filter(is_free, range(begins + 1, self.first_port))
        self.port = self.port or next(self._daemons_ports)
        self._operator = Operator(self.server, "alice", alice)

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def server(self) -> Server:
        return Server(self.host, self.port)

    def start_control(
        self,
        *words: str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> Daemon:
        """Again on the same state and port, if there was one before; with more `words` on its command line."""
        pace = ("--heartbeat", str(self.heartbeat_s), "--lost-after", str(self.lost_after_s))
        listen = ("--identity", str(self.pki / "control"), "--state", str(self.state))
        address = ("--listen", f"{self.host}:{self.port}")
        control = self._start("control", [*prefix, LLMGW, "control", *listen, *address, *pace, *words], environment)
        if ready:
            control.wait_for("listening")
        return control

    def start_agent(
        self,
        name: str,
        *words: str,
        gpus: int = 0,
        fabric: str = "",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Daemon:
        """A real agent, with more `words` on its command line; again as the same node, if there was one before.

        Its GPUs and its two adapters, if a fabric is named, are made up. The ports of its engines are its own.
        """
        number = self._numbers.setdefault(name, len(self._numbers))
        if not (self.pki / f"{name}.crt").exists():
            issue(self.authority, self.pki, Role.NODE, name)
        home = self.directory / f"hardware-{name}"
        home.mkdir(exist_ok=True)
        smi = str(write_nvidia_smi(home / "nvidia-smi", Answer(fake_gpus(gpus, node=name)))) if gpus else "/none"
        adapters = {f"mlx5_{port}": an_adapter(2 * number + port + 1) for port in range(2)} if fabric else {}
        tree = write_tree(home / "infiniband", adapters)
        where = ("--node", name, "--server", str(self.server), "--identity", str(self.pki / name))
        what = ("--state", str(self.agent_state(name)), "--ib-root", str(tree), "--nvidia-smi", smi)
        more = ("--fabric", fabric) if fabric else ()
        command = [*prefix, LLMGW, "agent", *where, *what, *self._ports(number), *more, *words]
        return self._start(name, command, {"PATH": OUR_PATH, **(environment or {})})

    def start_all(self, *names: str, words: Sequence[str] = ()) -> dict[str, Daemon]:
        """A control plane, and nodes of four GPUs and one fabric; all of them are there."""
        self.start_control()
        agents = {name: self.start_agent(name, *words, gpus=4, fabric="ib-a") for name in names}
        self.wait_until_looked(*names)
        return agents

    def start_gateway(
        self, name: str, *words: str, prefix: Sequence[str] = (), state: Path | None = None, ready: bool = True
    ) -> Gateway:
        """It asks for keys unless the `words` say otherwise; again at the same address, if there was one."""
        if not (self.pki / f"{name}.crt").exists():
            issue(self.authority, self.pki, Role.GATEWAY, name)
        address = self._gateways.setdefault(name, f"{self.host}:{next(self._daemons_ports)}")
        where = ("--server", str(self.server), "--identity", str(self.pki / name), "--listen", address)
        home = ("--state", str(state or self.directory / f"gateway-{name}"))
        daemon = self._start(name, [*prefix, LLMGW, "gateway", *where, *home, *words], None)
        if ready:
            daemon.wait_for("listening")
        return Gateway(daemon, address)

    def create_key(self, name: str, *words: str) -> str:
        return self.ctl("keys", "create", name, *words).strip()

    def agent_state(self, name: str) -> Path:
        return self.directory / f"agent-{name}"

    def light_agent(self, number: int, name: str) -> LightAgent:
        return LightAgent(name, self.server, issue(self.authority, self.pki, Role.NODE, name), facts_of_a_node(number))

    def _ports(self, number: int) -> Sequence[str]:
        first = self._block(number // AGENTS) + DAEMONS_PORTS + number % AGENTS * PORTS
        meet = f"{first + SERVE_PORTS}-{first + PORTS - 1}"
        return ("--serve-ports", f"{first}-{first + SERVE_PORTS - 1}", "--rendezvous-ports", meet)

    def _block(self, number: int) -> int:
        """The first port of one of this cluster's blocks."""
        while len(self._blocks) <= number:
            self._blocks.append(claim(LARGE))
        return first_port(self._blocks[number])

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None) -> Daemon:
        log = self.directory / f"{len(self._started)}-{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=output,
                stdout=output,
                env={**os.environ, **(environment or {})},
            )
        daemon = Daemon(process, log)
        self._started.append(daemon)
        return daemon

    def ctl(self, *words: str, prefix: Sequence[str] = (), deadline_s: float = DEADLINE_S) -> str:
        """What the command prints; an AssertionError with its words where it fails."""
        asked = [*prefix, LLMGW, "ctl", "--server", str(self.server), "--identity", str(self.pki / "alice"), *words]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=deadline_s, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, text: str, *words: str) -> None:
        """Make this catalog what is desired."""
        if words or self.outlook:
            catalog = self.directory / "catalog.toml"
            catalog.write_text(text, encoding="utf-8")
            self.ctl("apply", str(catalog), *words, prefix=self.outlook)
        else:
            self.ask("apply", name="catalog.toml", text=text)

    def offer(self, text: str) -> None:
        """Apply it without replicas, until every node has answered: only then are places chosen among all of them."""
        self.wait_until_looked(*self.nodes())
        self.apply(re.sub(r'(?m)^("replicas" =) \d+$', r"\1 0", text))
        models = re.findall(r"(?m)^\[models\.(\S+)\]$", text)
        wait_until(lambda: all(map(self._is_answered, models)), "every node's answers", every_s=self._every_s)

    @property
    def _every_s(self) -> float:
        return COMMAND_S if self.outlook else ASK_S

    def _is_answered(self, model: str) -> bool:
        profiles = self._look("explain", model=model)["profiles"]
        refusals = [node["refusal"] for profile in profiles for node in profile["nodes"]]
        return bool(refusals) and not any(map(_SOON.search, refusals))

    def replicas(self) -> dict[str, dict[str, Any]]:
        return {replica["id"]: replica for replica in self._look("replicas")}

    def replica(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._look("replica", replica=id)
        return found

    def ask(self, what: str, **arguments: Any) -> Any:
        """What a command would be answered, without a command's start: for waits, which ask again and again."""
        return self._operator.ask(what, **arguments)

    def facts_of(self, node: str) -> dict[str, Any]:
        """What it has told, without what is as when nobody says it; nothing before its first report has come."""
        return self._look("node", node=node)["facts"] or {}

    def wait_until_looked(self, *nodes: str) -> None:
        """All of these are there, and have told of their GPUs and engines: what is placed then, is placed among all."""
        wait_until(lambda: {*nodes} <= {*self.nodes()}, "all nodes", every_s=self._every_s)
        for node in nodes:
            wait_until(partial(self._has_looked, node), f"what {node} has looked at", every_s=self._every_s)

    def _has_looked(self, node: str) -> bool:
        facts = self.facts_of(node)
        looks = [facts.get("gpus", {}), *facts.get("engines", ())]
        return len(looks) > 1 and all(each.get("reason") != NOT_LOOKED_YET for each in looks)

    def _look(self, what: str, **arguments: str) -> Any:
        if self.outlook:
            return json.loads(self.ctl(what, *arguments.values(), "--json", prefix=self.outlook))
        return self.ask(what, **arguments)

    def wait_for_replica(
        self, id: str, state: str = "ready", above: int = -1, deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """The replica, as soon as it is in that state, in a generation above that one.

        `ready` is what is seen now; what was decided of it, and is among the events, comes a moment later: with it.
        """

        def found() -> dict[str, Any] | None:
            replica = self.replicas().get(id)
            if replica is None or replica["state"] != state or replica["generation"] <= above:
                return None
            return replica if state != "ready" or replica["ready_at"] else None

        try:
            what = f"{id} {state} in a generation above {above}"
            replica: dict[str, Any] = wait_until(found, what, deadline_s, self._every_s)
        except AssertionError as error:
            told = (self.ctl("replicas", prefix=self.outlook), self.ctl("events", prefix=self.outlook))
            raise AssertionError("\n".join((str(error), *told))) from None
        return replica

    def wait_until_gone(self) -> None:
        """No replica is left, wanted or not, nor any process of one."""
        wait_until(lambda: not self.replicas(), "every replica gone", every_s=self._every_s)
        wait_until(lambda: not self.shard_processes(), "every process gone", every_s=ASK_S)

    def shard_processes(self, marker: str = "") -> tuple[Process, ...]:
        """All that runs of the shards of all nodes, the reapers too; of one shard: `m/1#0@1`, or how that begins."""
        tables = [read_processes(agent_digest(self.agent_state(name))) for name in self._numbers]
        return tuple(
            each
            for table in tables
            for each in table.values()
            if each.marker and each.lives and each.marker.startswith(marker)
        )

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in self._look("nodes")}

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        if self.outlook:
            lines = self.ctl("events", "--json", "--last", "10000", prefix=self.outlook).splitlines()
            found = [json.loads(line) for line in lines]
        else:
            found = self.ask("events", node="", limit=10_000, after=0)
        return [event for event in found if kind in event["kind"]]

    def wait_for_state(self, name: str, state: str) -> None:
        wait_until(lambda: self.nodes().get(name, {}).get("state") == state, f"{name} {state}", every_s=self._every_s)

    def end(self) -> None:
        self._operator.end()
        for daemon in self._started:
            if daemon.process.poll() is None:
                daemon.signal(signal.SIGCONT)
                daemon.process.terminate()
        for daemon in self._started:
            try:
                daemon.process.wait(END_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
        kill(each.id for each in self.shard_processes())  # engines outlive their agents
        for block in self._blocks:
            block.close()


@contextmanager
def running_cluster(directory: Path, **given: Any) -> Iterator[Cluster]:
    cluster = Cluster(directory, **given)
    try:
        yield cluster
    finally:
        cluster.end()


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock

"""`make bench`: what a fleet costs the control plane, in one run, as ratios where there is something to compare with.

Three processes beside this one: a control plane with a probe (bench/probed_control.py), and all agents, half of them
in each of two (bench/many_agents.py), which use the real call, wire and session and discover nothing. Raw handshakes
are those of OpenSSL with the same contexts, both ends in one thread over memory, before and after: a machine whose
speed drifts slows both, but other work on it counts against the control plane. A figure over its limit is marked, and
the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import trio
from attrs import define
from bench.figures import Figures

from llmgw_core.control.writer import open_writer
from llmgw_core.model.identity import Role
from llmgw_core.net.tls import CredentialFiles, client_context, server_context
from llmgw_core.pki.authority import Authority
from llmgw_core.store.change import Change, EventHappened, NodeConnected, NodeReported
from llmgw_core.store.database import Database
from llmgw_core.testing.light_agent import facts_of_a_node, issue, node_name
from llmgw_core.wire.facts import render_facts

HERE = Path(__file__).parent
LLMGW = str(Path(sys.executable).with_name("llmgw"))
WRITERS = 100
"""Tasks that wait for the disk at the same time."""


@define
class Child:
    """A process that answers each line with a line of JSON."""

    _process: subprocess.Popen[str]
    _input: IO[str]
    _output: IO[str]

    def ask(self, question: str) -> dict[str, Any]:
        self.say(question)
        return self.read()

    def say(self, question: str) -> None:
        self._input.write(f"{question}\n")
        self._input.flush()

    def read(self) -> dict[str, Any]:
        line = self._output.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@define
class Crowd:
    """Several of them, asked at the same time."""

    _children: Sequence[Child]

    def read(self) -> dict[str, float]:
        """The worst of all."""
        answers = [each.read() for each in self._children]
        return {key: max(answer[key] for answer in answers) for key in answers[0]}

    def ask(self, question: str) -> dict[str, float]:
        for each in self._children:
            each.say(question)
        return self.read()


@contextmanager
def child(script: str, *arguments: object, log: Path) -> Iterator[Child]:
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        if process.stdin is None or process.stdout is None:
            raise AssertionError
        try:
            yield Child(process, process.stdin, process.stdout)
        finally:
            process.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--beat-s", type=float, default=5.0)
    parser.add_argument("--beating-s", type=float, default=15.0, help="How long heartbeats are measured.")
    parser.add_argument("--logs", type=Path, help="Keep the processes' logs in this directory.")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = Figures()
    with tempfile.TemporaryDirectory(dir=HERE, prefix=".bench-") as directory:
        measure_fleet(figures, Path(directory), given)
        measure_writer(figures, Path(directory))
    print(f"over the limit: {', '.join(figures.over)}" if figures.over else "all within their limits")
    return bool(figures.over)


def measure_fleet(figures: Figures, directory: Path, given: argparse.Namespace) -> None:
    count, pki, logs = given.agents, directory / "pki", given.logs or directory
    logs.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(directory / "ca", datetime.now(UTC))  # noqa: TID251 - the real clock judges
    pki.mkdir()
    server = issue(authority, pki, Role.SERVER, "control", ["127.0.0.1"])
    issue(authority, pki, Role.OPERATOR, "alice")
    nodes = [issue(authority, pki, Role.NODE, node_name(number)) for number in range(count)]
    before = handshake_s(server, nodes)
    with child("probed_control.py", pki / "control", directory / "state", log=logs / "control.log") as control:
        port = control.read()["port"]
        with (
            child("many_agents.py", port, pki, 0, count // 2, given.beat_s, log=logs / "agents.log") as some,
            child(
                "many_agents.py", port, pki, count // 2, count - count // 2, given.beat_s, log=logs / "b.log"
            ) as rest,
        ):
            agents = Crowd([some, rest])
            agents.read()
            empty = control.ask("probe")
            first = agents.ask("connect")
            full = control.ask("probe")
            beats = agents.ask(f"beat {given.beating_s}")
            beaten = control.ask("probe")
            command = ctl_nodes_s(f"https://127.0.0.1:{port}", pki / "alice")
            control.ask("probe")
            again = agents.ask("storm")
            stormed = control.ask("probe")
    raw, raw_cpu = (sum(each) / 2 for each in zip(before, handshake_s(server, nodes), strict=True))
    figures.show("a raw mutual handshake, both ends", raw * 1e3, "ms")
    show_registration(figures, count, first, full, raw)
    cpu_s = full["cpu_s"] - empty["cpu_s"]
    figures.show("  the control plane's CPU time", cpu_s / count / raw_cpu, "x handshake")
    show_beats(figures, beats)
    memory = (beaten["rss"] - empty["rss"]) / count / 1e3
    figures.show("memory, with links and facts", memory, "kB/agent", "at most 80", 80)
    figures.show(f"`ctl nodes` with {count} nodes, the whole command", command, "s", "at most 1", limit=1)
    figures.show("storm: all gone and back", again["s"] / count / raw, "x handshake")
    show_storm(figures, stormed)
    figures.show("storm: memory after it", (stormed["rss"] - empty["rss"]) / count / 1e3, "kB/agent")


def show_registration(
    figures: Figures, count: int, first: dict[str, Any], full: dict[str, Any], handshake: float
) -> None:
    ratio = first["s"] / count / handshake
    figures.show(f"{count} agents registered", ratio, "x handshake", "goal 2.5, at most 3.5", limit=3.5)
    figures.show("  the same", first["s"], "s")
    figures.show("  half of them", first["half_s"], "s")
    figures.show("  calls that came too late and were made again", first["late"], "")
    figures.show("  loop lag meanwhile, worst", full["lag_ms"], "ms")
    figures.show("  loop lag meanwhile, p99", full["lag_p99_ms"], "ms")
    figures.show("  longest turn of the loop meanwhile, CPU time", full["turn_ms"], "ms")


def show_beats(figures: Figures, beats: dict[str, Any]) -> None:
    figures.show("heartbeat there and back, p50", beats["p50_ms"], "ms")
    figures.show("heartbeat there and back, p99", beats["p99_ms"], "ms", "goal 20, at most 50", limit=50)
    figures.show("  beats per second", 2 * beats["per_s"], "/s")


def show_storm(figures: Figures, stormed: dict[str, Any]) -> None:
    figures.show("storm: loop lag, worst", stormed["lag_ms"], "ms", "goal 50, at most 150", limit=150)
    figures.show("storm: loop lag, p99", stormed["lag_p99_ms"], "ms")
    figures.show("storm: longest turn of the loop, CPU time", stormed["turn_ms"], "ms")


def handshake_s(server: CredentialFiles, nodes: Sequence[CredentialFiles]) -> tuple[float, float]:
    """Seconds of one handshake of OpenSSL, both ends, without a socket, and those of CPU."""
    accepting, calling = server_context(server), [client_context(node) for node in nodes[:200]]
    begun, cpu = time.perf_counter(), time.process_time()
    for context in calling:
        shake(accepting, context)
    return (time.perf_counter() - begun) / len(calling), (time.process_time() - cpu) / len(calling)


def shake(accepting: ssl.SSLContext, calling: ssl.SSLContext) -> None:
    upward, downward = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        calling.wrap_bio(downward, upward, server_hostname="127.0.0.1"),
        accepting.wrap_bio(upward, downward, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass


def ctl_nodes_s(server: str, identity: Path) -> float:
    command = [LLMGW, "ctl", "--server", server, "--identity", str(identity), "nodes"]
    seconds = []
    for _ in range(4):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])


def measure_writer(figures: Figures, directory: Path) -> None:
    """A transition is a report and an event, durable when it is answered."""
    database = Database(directory / "writer.db")
    facts = render_facts(facts_of_a_node(0))
    names = [node_name(number) for number in range(WRITERS)]
    database.commit([NodeConnected(name, "node", name, name, 2e9, "", name, 1.0) for name in names])
    one_by_one, grouped = [], []
    for turn in range(3):
        begun = time.perf_counter()
        for index, name in enumerate(names):
            database.commit(transition(name, 1000 * turn + index + 1, facts))
        one_by_one.append(WRITERS / (time.perf_counter() - begun))
        grouped.append(trio.run(grouped_per_s, database, names, turn, facts))
    database.close()
    single = statistics.median(one_by_one)
    figures.show("single FULL commits", single, "/s")
    figures.show("transitions through the writer", statistics.median(grouped), "/s")
    ratio = statistics.median(grouped) / single
    figures.show("  the same", ratio, "x single", "at least 5", limit=5)


def transition(name: str, number: int, facts: str) -> tuple[Change, ...]:
    return NodeReported(name, name, number, facts, float(number)), EventHappened("told", name, "it told", float(number))


async def grouped_per_s(database: Database, names: Sequence[str], turn: int, facts: str) -> float:
    each = 20
    async with open_writer(database) as writer, trio.open_nursery() as nursery:
        begun = time.perf_counter()

        async def report(name: str) -> None:
            for index in range(each):
                await writer.write(*transition(name, 1000 * turn + 500 + index, facts))

        for name in names:
            nursery.start_soon(report, name)
    return len(names) * each / (time.perf_counter() - begun)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())

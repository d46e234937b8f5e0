"""`make bench`: what a request and a streamed chunk cost through the gateway, in one run with what others take.

A mock engine and a load generator, both in C, are compiled from the directory that `LLMGW_BENCH_TOOLS` names, or from
`../shared/bench`; without them nothing is measured, and that is said. Targets are pinned to one core, engine and load
to the other. All targets take turns within each round; a figure is the median of its rounds, and counts as a ratio.
CPU is that of the target's whole process tree. A figure over its limit is marked, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field
from bench.figures import Figures
from bench.gateway_targets import LOAD_CORE, MODEL, Running, free_port, start, start_all, start_gateway

TOOLS = Path(os.environ.get("LLMGW_BENCH_TOOLS", Path(__file__).parent.parent.parent / "shared" / "bench"))
CONNECTIONS = 64
WARM_S, RUN_S = 0.5, 3.0
CHUNKS, EVERY_MS = 50, 10
FEW = 4
"""Streams at a time where what counts is the first chunk."""
HELD_EVERY_MS = 1000
HELD_CHUNKS = 600
IDLE = 5000
"""Connections on which nothing is asked."""
SLOW = ("litellm",)
"""Measured in one round only."""


@define
class Load:
    """The load generator; each call is one run of it."""

    program: Path

    def plain(self, target: Running | int) -> dict[str, Any]:
        return self._run(target, "n", CONNECTIONS, 1, 0)

    def streams(self, target: Running | int, many: int = CONNECTIONS) -> dict[str, Any]:
        return self._run(target, "s", many, CHUNKS, EVERY_MS)

    def _run(self, target: Running | int, mode: str, many: int, chunks: int, every_ms: int) -> dict[str, Any]:
        before = 0.0 if isinstance(target, int) else target.cpu_s()
        port = target if isinstance(target, int) else target.port
        words = [str(port), mode, str(many), str(WARM_S), str(RUN_S), str(chunks), str(every_ms)]
        done = subprocess.run(
            ["taskset", "-c", str(LOAD_CORE), str(self.program), *words], capture_output=True, text=True, check=True
        )
        result: dict[str, Any] = json.loads(done.stdout)
        if result["errors"] or result["non200"] or not (result["done"] or result["chunks"]):
            raise SystemExit(f"failed requests at {target}: {result['firsterr']}")
        if not isinstance(target, int):
            share = RUN_S / (WARM_S + RUN_S)
            cpu_us = (target.cpu_s() - before) * 1e6 * share
            result["cpu_us"] = cpu_us / max(1, result["chunks"] or result["done"])
        return result


@define
class Rounds:
    """What each target gave, by what was measured."""

    _taken: dict[tuple[str, str], list[float]] = field(factory=dict)

    def note(self, target: str, what: str, value: float) -> None:
        self._taken.setdefault((target, what), []).append(value)

    def median(self, target: str, what: str) -> float:
        return statistics.median(self._taken[target, what])

    def has(self, target: str) -> bool:
        return any(name == target for name, _ in self._taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=5000, help="held at a time")
    given = parser.parse_args()
    missing = [name for name in ("gcc", "taskset") if shutil.which(name) is None]
    if missing or not (TOOLS / "lg.c").exists():
        why = f"no {missing[0]}" if missing else f"no load generator in {TOOLS} (LLMGW_BENCH_TOOLS)"
        print(f"the gateway is not measured: {why}", flush=True)
        return 0
    figures = Figures()
    with tempfile.TemporaryDirectory() as made, _engine(Path(made)) as (load, engine):
        home = Path(made)
        targets = start_all(home, engine)
        try:
            _compare(figures, load, engine, targets, given.rounds)
        finally:
            for target in targets.values():
                target.end()
        _scale(figures, load, engine, home)
        _hold(figures, load, engine, home / "held", given.streams)
        _idle(figures, engine, home / "idle")
    return 1 if figures.over else 0


@contextmanager
def _engine(home: Path) -> Iterator[tuple[Load, int]]:
    for name in ("lg", "upstream"):
        subprocess.run(["gcc", "-O2", "-w", "-o", home / name, TOOLS / f"{name}.c", "-lm"], check=True)
    port = free_port()
    engine = start("engine", port, [str(home / "upstream"), str(port), MODEL], home, str(LOAD_CORE))
    try:
        yield Load(home / "lg"), port
    finally:
        engine.end()


def _compare(figures: Figures, load: Load, engine: int, targets: dict[str, Running], rounds: int) -> None:
    taken = Rounds()
    for number in range(rounds):
        taken.note("none", "first", load.streams(engine, FEW)["ttfc_us"]["p50"])
        for name, target in targets.items():
            if name in SLOW and number:
                continue
            plain = load.plain(target)
            taken.note(name, "rps", plain["rps"])
            taken.note(name, "request", plain["cpu_us"])
            taken.note(name, "chunk", load.streams(target)["cpu_us"])
            taken.note(name, "first", load.streams(target, FEW)["ttfc_us"]["p50"])
    for name in targets:
        rps, request, chunk = (taken.median(name, what) for what in ("rps", "request", "chunk"))
        first = taken.median(name, "first") - taken.median("none", "first")
        cost = f"{request:8.1f} µs/request  {chunk:7.1f} µs/chunk"
        print(f"{name:<14} {rps:8.0f} requests/s  {cost}  +{first:.0f} µs to the first chunk", flush=True)
    _judge(figures, taken)


def _judge(figures: Figures, taken: Rounds) -> None:
    if taken.has("nginx"):
        rate = taken.median("llmgw", "rps") / taken.median("nginx", "rps")
        figures.show("plain requests a second", rate, "x nginx", "at least 0.40, must 0.25", 0.25)
        chunk = taken.median("llmgw", "chunk") / taken.median("nginx", "chunk")
        figures.show("CPU of a streamed chunk", chunk, "x nginx", "1.5, at most 2.2", 2.2)
    if taken.has("vllm-router"):
        rate = taken.median("llmgw", "rps") / taken.median("vllm-router", "rps")
        figures.show("plain requests a second", rate, "x vllm-router", "at least 2.5", 2.5)
        direct = taken.median("none", "first")
        added, theirs = (taken.median(name, "first") - direct for name in ("llmgw", "vllm-router"))
        figures.show("time added to the first chunk", added / theirs, "x vllm-router", "1", 1.0)


def _scale(figures: Figures, load: Load, engine: int, home: Path) -> None:
    """Two workers against one, both free to run on every core, beside the engine and the load."""
    taken = Rounds()
    cores = f"0-{(os.cpu_count() or 2) - 1}"
    for workers in (1, 2):
        own = home / f"scale-{workers}"
        own.mkdir()
        target = start_gateway(own, engine, workers, cores)
        try:
            for _ in range(3):
                plain = load.plain(target)
                taken.note(str(workers), "rps", plain["rps"])
                taken.note(str(workers), "request", plain["cpu_us"])
        finally:
            target.end()
    figures.show("two workers, as measured", taken.median("2", "rps") / taken.median("1", "rps"), "x one", "1.6")
    capacity = 2 * taken.median("1", "request") / taken.median("2", "request")
    figures.show("two workers, by the CPU of a request", capacity, "x one", "at least 1.6", 1.6)


def _hold(figures: Figures, load: Load, engine: int, home: Path, streams: int) -> None:
    """Streams held, each with a chunk a second."""
    home.mkdir()
    target = start_gateway(home, engine)
    try:
        idle = target.memory_bytes()
        figures.show("memory after the start", idle / 1e6, "MB", "45, at most 78", 78)
        words = [str(target.port), "h", str(streams), "15", "10", str(HELD_CHUNKS), str(HELD_EVERY_MS), "1000"]
        held = subprocess.Popen(
            ["taskset", "-c", str(LOAD_CORE), str(load.program), *words], stdout=subprocess.PIPE, text=True
        )
        most = idle
        while held.poll() is None:
            most = max(most, target.memory_bytes())
            _nap(held)
        result = json.loads(held.communicate()[0])
        active = result["streams_active"]
        if result["errors"] or active < streams:
            raise SystemExit(f"{active} of {streams} streams were held: {result['firsterr']}")
        figures.show(
            f"memory of each of {streams} held streams", (most - idle) / streams / 1e3, "kB", "8, at most 20", 20
        )
        figures.show("chunks a second meanwhile, all on time", result["chunks_s"], "chunks/s")
    finally:
        target.end()


def _idle(figures: Figures, engine: int, home: Path) -> None:
    home.mkdir()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    target = start_gateway(home, engine)
    try:
        before = target.memory_bytes()
        with ExitStack() as connected:
            for _ in range(IDLE):
                connected.enter_context(socket.create_connection(("127.0.0.1", target.port)))
            time.sleep(2)  # the last of them wait to be accepted
            each_kb = (target.memory_bytes() - before) / IDLE / 1e3
        figures.show(f"memory of each of {IDLE} idle connections", each_kb, "kB", "3, at most 6", 6)
    finally:
        target.end()


def _nap(held: subprocess.Popen[str]) -> None:
    try:
        held.wait(0.5)
    except subprocess.TimeoutExpired:
        return


if __name__ == "__main__":
    sys.exit(main())

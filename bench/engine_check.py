"""`make bench`: what engine-check costs, as multiples of an empty Python on the same machine in the same run.

Whole processes are timed from outside, in turn (A B C A B C …), so that a machine whose speed drifts slows all alike;
the median of each is divided by the median of `python -c pass`. Bytecode is compiled first, as pip does for a wheel;
without it every start would compile the sources again. The help texts are the recorded ones where they are
there (see `llmgw_core.testing.recorded`), else a text of like size made from the recorded flags.
"""

from __future__ import annotations

import compileall
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import llmgw_core
from llmgw_core.engine import FlagTable
from llmgw_core.plugins import load_engines
from llmgw_core.surface import read_surfaces
from llmgw_core.testing.recorded import recorded_directory

ROUNDS = 15
LLMGW = str(Path(sys.executable).with_name("llmgw"))
PASS = [sys.executable, "-c", "pass"]

# From the same kind of measurement of other tools' `--help`: multiples of `python -c pass`.
PEERS = {"vllm-router --help": 50, "litellm --help": 483, "sglang --help": 687, "vllm --help": 1520}


def main() -> None:
    for package in (llmgw_core, *(import_module(f"llmgw_engine_{engine}") for engine in ("llamacpp", "sglang"))):
        compileall.compile_dir(str(Path(str(package.__file__)).parent), quiet=1)
    with tempfile.TemporaryDirectory() as directory:
        llama = _text(Path(directory), "llamacpp", "llama-server", "llamacpp-b10991.help.txt")
        check = [LLMGW, "ctl", "engine-check", "llamacpp", "--help-output", f"@{llama}"]
        commands = {
            "python -c pass": PASS,
            "llmgw --help": [LLMGW, "--help"],
            "llmgw ctl engine-check llamacpp --help-output @FILE": check,
            "llmgw ctl engine-check llamacpp --all-versions": [
                LLMGW,
                "ctl",
                "engine-check",
                "llamacpp",
                "--all-versions",
            ],
        }
        medians = time_in_turn(commands)
        base = medians["python -c pass"]
        print(f"{'command':<55} {'ms':>7} {'x pass':>7}")
        for name, seconds in medians.items():
            print(f"{name:<55} {seconds * 1000:7.1f} {seconds / base:7.1f}")
        for name, multiple in PEERS.items():
            print(f"{name + ' (recorded elsewhere)':<55} {'':>7} {multiple:7.1f}")
        largest = _text(Path(directory), "sglang", "sglang", "sglang-0.5.23.help.txt")
        _print_reading(largest)


def time_in_turn(commands: dict[str, list[str]]) -> dict[str, float]:
    """The median seconds of each command, all run in turn, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for counted in [False] + [True] * ROUNDS:
        for name, command in commands.items():
            took = _seconds(lambda command=command: subprocess.run(command, capture_output=True, check=False))  # type: ignore[misc]
            if counted:
                seconds[name].append(took)
    return {name: statistics.median(each) for name, each in seconds.items()}


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _print_reading(path: Path) -> None:
    engines = load_engines({"sglang"})
    text = path.read_text(encoding="utf-8")
    took = [_seconds(lambda: engines.read_help("sglang", "sglang", text)) for _ in range(ROUNDS)]
    flags = len(engines.read_help("sglang", "sglang", text).flags)
    ms = statistics.median(took) * 1000
    print(f"\nreading {path.name}: {len(text) / 1000:.0f} kB, {flags} options: {ms:.1f} ms")


def _text(directory: Path, engine: str, program: str, recorded: str) -> Path:
    """The recorded text, or one of like size and form that is made from the recorded flags."""
    path = recorded_directory() / "help" / recorded
    if path.exists():
        return path
    made = directory / f"{program}-made.help.txt"
    surface = read_surfaces(load_engines({engine}).info(engine), program)[-1]
    like = _like_llama if engine == "llamacpp" else _like_argparse
    made.write_text("\n".join(like(surface.table)), encoding="utf-8")
    return made


def _like_llama(table: FlagTable) -> Iterator[str]:
    for section in ("common", "sampling", "speculative", "example-specific"):
        yield f"----- {section} params -----"
    for flag in table.flags:
        yield f"{', '.join(flag.names)}{' N' * flag.arity.least}"
        yield f"{' ' * 40}{'words ' * 16}"


def _like_argparse(table: FlagTable) -> Iterator[str]:
    yield from ("usage: sglang serve [options]", "", "options:")
    for flag in table.flags:
        yield f"  {', '.join(flag.names)}{' N' * flag.arity.least}"
        yield from [f"{' ' * 24}{'words ' * 9}"] * 4


if __name__ == "__main__":
    main()

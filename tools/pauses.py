"""Run a command while this checkout's processes are paused and delayed at random: `make races`.

A race that needs one process to be slow at one line shows itself in minutes, where plain load takes days. A pause is
shorter than any silence after which the project takes a process for lost; so what fails under pauses is a fault of the
project, or of the test. (But for one kind, which is rare: what a test stops within a pause goes on after it.)
The delays are inside the processes: see `delays/sitecustomize.py`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DELAYS = Path(__file__).resolve().with_name("delays")
LONGEST_S = 0.5
BETWEEN_S = 0.3
"""The longest time without a pause."""


def main(command: Sequence[str]) -> int:
    environment = {**os.environ, "PYTHONPATH": str(DELAYS)}
    with subprocess.Popen(command, env=environment) as run:
        while run.poll() is None:
            running = [pid for pid in pids_of(CHECKOUT) if pid not in (os.getpid(), run.pid)]
            if running:
                pause(random.choice(running), random.uniform(0, LONGEST_S))  # noqa: S311 - nothing secret
            time.sleep(random.uniform(0, BETWEEN_S))  # noqa: S311
    return run.returncode


def pids_of(checkout: Path) -> Iterator[int]:
    """The processes whose command names a file of it, whoever started them; none that is stopped already."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes()
            state = (process / "stat").read_bytes().rpartition(b") ")[2][:1]
            if f"{checkout}/".encode() in command and state not in b"TZ":
                yield int(process.name)


def pause(pid: int, seconds: float) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A simulated engine as a real process, for tests. Every wait has a deadline that fails."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 60


class Sim:
    """One process; `log` is what it has said so far."""

    def __init__(self, log: Path, *args: str, **env: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "llmgw_engine_sim", "--model", "m", "--port", "0", *args]
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **env})

    @property
    def log(self) -> str:
        return self._log.read_text()

    def await_log(self, words: str) -> str:
        return await_true(lambda: self.log if words in self.log else "", f"{words!r} in {self._log.name}")

    @property
    def port(self) -> int:
        self.await_log("listening on ")
        return int(self.log.partition("listening on 127.0.0.1:")[2].split()[0])

    def await_exit(self) -> int:
        return self.process.wait(DEADLINE_S)

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, raw, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, json.loads(text) if answer.getheader("content-type") == "application/json" else text


def await_true(condition: Callable[[], str], what: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {DEADLINE_S} s for {what}")
        time.sleep(0.01)
    return found


Start = Callable[..., Sim]


@contextmanager
def sims(directory: Path) -> Iterator[Start]:
    """What starts processes, each with its log in `directory`; none is left at the end."""
    with ExitStack() as stack:

        def start(name: str, *args: str, **env: str) -> Sim:
            sim = Sim(directory / name, *args, **env)
            stack.callback(sim.process.wait, DEADLINE_S)
            stack.callback(sim.process.kill)
            return sim

        yield start


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def start_ranks(start: Start, *args: str, count: int = 2) -> list[Sim]:
    """The processes of one replica, rank 0 first in the list and last to start."""
    at = ("--nnodes", str(count), "--dist-init-addr", f"127.0.0.1:{free_port()}", *args)
    return [start(f"rank{rank}", *at, "--node-rank", str(rank)) for rank in reversed(range(count))][::-1]

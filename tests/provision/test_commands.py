"""One command, and the signals that come meanwhile."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from llmgw_core.provision.commands import Interrupted, run, signals_raise


def test_a_signal_that_comes_while_a_command_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on, and nobody would know of it: a VM would be made after it was looked for and not found."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: Any, **more: Any) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = make(*arguments, **more)
        started.append(process)
        signal.raise_signal(signal.SIGTERM)
        return process

    make = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with signals_raise(), pytest.raises(Interrupted):
        run(("sleep", "60"), timeout_s=60)
    (process,) = started
    assert process.poll() == -signal.SIGTERM


def test_a_command_that_cannot_be_started_leaves_signals_as_they_were() -> None:
    with signals_raise():
        with pytest.raises(FileNotFoundError):
            run(("/no/such/program",), timeout_s=1)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)

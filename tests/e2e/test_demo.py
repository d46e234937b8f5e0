"""The demonstration tells its whole story, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from llmgw_core.agent.node import agent_digest
from llmgw_core.agent.processes import read_processes
from llmgw_core.demo.fleet import NODES
from llmgw_core.testing.cluster import LLMGW, wait_until

STORY_S = 240.0


def left_of(directory: Path) -> list[str]:
    """What still runs of its engines."""
    tables = [read_processes(agent_digest(directory / node.name / "state")) for node in NODES]
    return [str(each) for table in tables for each in table.values() if each.marker and each.lives]


def test_every_step_is_seen_and_nothing_is_left(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    command = [LLMGW, "demo", "--once", "--directory", str(home)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=STORY_S, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "saga says again" in told.stdout
    assert "ready all the time: haiku 2, saga 1" in told.stdout
    assert "answered whole, 0 failed" in told.stdout
    wait_until(lambda: left_of(home) == [], "what was killed has ended")


def test_ended_in_the_middle_it_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    with (tmp_path / "told").open("w+") as told:
        demo = subprocess.Popen([LLMGW, "demo", "--keep", "--directory", str(home)], stdout=told, stderr=told)
        try:
            wait_until(lambda: left_of(home), "engines run", STORY_S)
            demo.send_signal(signal.SIGTERM)
            demo.wait(STORY_S / 2)
        finally:
            demo.kill()
            demo.wait()
    wait_until(lambda: left_of(home) == [], "what was killed has ended")

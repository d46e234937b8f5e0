"""Whose processes are a shard's, as /proc shows them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from llmgw_core.agent.processes import read_processes

MARKS = {"LLMGW_AGENT": "the-agent", "LLMGW_SHARD": "m/1#0@1"}


@pytest.fixture(name="user", params=[None, 65534])
def _user(request: pytest.FixtureRequest) -> int | None:
    if request.param is not None and os.getuid() != 0:
        pytest.skip("only root starts processes of others")
    user: int | None = request.param
    return user


@pytest.fixture(name="pid")
def _pid(user: int | None) -> Iterator[int]:
    with subprocess.Popen(["/bin/sleep", "60"], env=MARKS, user=user) as process:
        yield process.pid
        process.kill()


def test_a_marker_counts_only_in_a_process_of_our_user(pid: int, user: int | None) -> None:
    """Else whoever has an account on the node listens in a shard's name, or takes its GPUs from everybody."""
    assert read_processes("the-agent")[pid].marker == (MARKS["LLMGW_SHARD"] if user is None else "")
    assert read_processes("another")[pid].marker == ""

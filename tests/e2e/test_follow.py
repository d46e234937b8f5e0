"""`ctl events --follow` is watched just when a control plane restarts."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from llmgw_core.testing.cluster import END_S, LLMGW, running_cluster, wait_until


def test_following_goes_on_over_a_restart(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with running_cluster(tmp_path) as cluster:
        control = cluster.start_control()
        cluster.start_agent("gpu1").wait_for("INFO connected")
        who = ["--server", str(cluster.server), "--identity", str(cluster.pki / "alice")]
        with told.open("wb") as output:
            follow = subprocess.Popen([LLMGW, "ctl", *who, "events", "--follow", "--json"], stdout=output)
        try:
            wait_until(lambda: "node connected" in told.read_text(), "the first events")
            control.kill()
            cluster.start_control()
            wait_until(lambda: [each["kind"] for each in _events(told)].count("node connected") == 2, "it is back")
            assert follow.poll() is None
            ids = [each["id"] for each in _events(told)]
            assert ids == sorted(set(ids))
        finally:
            follow.send_signal(signal.SIGINT)
            assert follow.wait(END_S) == 130


def _events(told: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.read_text().splitlines(keepends=True) if line.endswith("\n")]

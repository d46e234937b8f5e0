"""How a reaper is launched. That systemd does with this command what is meant was not run here: see the last test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmgw_core.agent import housing
from llmgw_core.agent.housing import NotHoused, OwnSession, SystemdUnit, choose_housing, unit_name
from llmgw_core.testing.running_node import a_launch, marked_processes, running_node

HERE = Path("/var/lib/llmgw/agent/shards/m_1-0b203ec73c.0.1")


def test_a_unit_has_a_cgroup_of_its_own_and_no_secret() -> None:
    command = SystemdUnit("/usr/bin/systemd-run").launch_command(HERE, HERE / "reaper.py", {"LLMGW_SHARD": "m/1#0@1"})
    assert command == (
        "/usr/bin/systemd-run",
        "--quiet",
        "--collect",
        f"--unit={unit_name(HERE)}",
        "--slice=llmgw.slice",
        "--description=llmgw shard m_1-0b203ec73c.0.1",
        "--property=KillMode=mixed",
        "--property=TimeoutStopSec=40",
        "--property=SendSIGKILL=yes",
        "--property=OOMPolicy=continue",
        "--property=LimitNOFILE=1048576",
        "--property=LimitMEMLOCK=infinity",
        "--property=TasksMax=infinity",
        "--setenv=LLMGW_SHARD=m/1#0@1",
        "--",
        sys.executable,
        "-I",
        "-S",
        str(HERE / "reaper.py"),
        str(HERE),
    )


def test_units_of_two_agents_and_two_attempts_are_not_one() -> None:
    assert unit_name(HERE) != unit_name(HERE.with_name("m_1-0b203ec73c.0.2"))
    assert unit_name(HERE) != unit_name(Path("/srv/agent/shards") / HERE.name)


def test_systemd_is_used_where_it_runs_and_obeys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housing, "SYSTEMD", tmp_path / "none")
    assert isinstance(choose_housing(), OwnSession)
    monkeypatch.setattr(housing, "SYSTEMD", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert choose_housing() == SystemdUnit("/usr/bin/systemd-run")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert isinstance(choose_housing(), OwnSession)


@pytest.mark.parametrize(
    ("does", "said"),
    [("echo no room >&2; exit 1", "the reaper did not start: no room"), ("exit 5", "the reaper did not start: exit")],
)
async def test_a_reaper_that_does_not_start_is_told(tmp_path: Path, does: str, said: str) -> None:
    broken = tmp_path / "systemd-run"
    broken.write_text(f"#!/bin/sh\n{does}\n")
    broken.chmod(0o755)
    with pytest.raises(NotHoused, match=said):
        await SystemdUnit(str(broken)).launch(tmp_path, tmp_path / "reaper.py", {})


async def test_a_shard_lives_and_ends_in_what_systemd_run_would_start(tmp_path: Path) -> None:
    """With a stand-in for systemd-run that runs the command behind `--` in the background, as systemd does."""
    fake = tmp_path / "systemd-run"
    fake.write_text(
        '#!/bin/bash\nfor w in "$@"; do shift; case "$w" in --setenv=*) export "${w#--setenv=}";; --) break;; esac;'
        ' done\nsetsid "$@" < /dev/null > /dev/null 2>&1 &\n'
    )
    fake.chmod(0o755)
    launch = a_launch()
    async with running_node(tmp_path / "agent", housing=SystemdUnit(str(fake))) as node:
        await node.ready(launch)
        await node.stop(launch)
        assert marked_processes(tmp_path / "agent") == ()


@pytest.mark.skipif(not housing.SYSTEMD.is_dir(), reason="systemd does not run here: its units were not tried")
async def test_a_shard_lives_and_ends_in_a_unit(tmp_path: Path) -> None:
    launch = a_launch()
    async with running_node(tmp_path, housing=choose_housing()) as node:
        status = await node.ready(launch)
        unit = unit_name(node.runtime.shards._attempts[launch.replica, 0, 1].directory)
        assert unit in Path(f"/proc/{status.pid}/cgroup").read_text()  # noqa: ASYNC240
        await node.stop(launch)
        assert marked_processes(tmp_path) == ()

"""Asking an nvidia-smi that is a real process, and does what the real one does on its bad days."""

import os
import signal
from pathlib import Path

import pytest
import trio

from llmgw_core.discovery.gpus import NvidiaSmi
from llmgw_core.model.node import Found
from llmgw_core.testing.fake_nvidia_smi import Answer, fake_gpus, started_pids, write_nvidia_smi


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nvidia-smi"


def asking(path: Path | str, timeout_s: float = 60) -> NvidiaSmi:
    return NvidiaSmi(str(path), environ=os.environ, timeout_s=timeout_s)


def write_script(path: Path, text: str, mode: int = 0o755) -> None:
    path.write_text(text)
    path.chmod(mode)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_healthy_one_is_started_once(path: Path) -> None:
    write_nvidia_smi(path, Answer(fake_gpus(8)))
    report = await asking(path).fetch_gpus()
    assert (report.outcome, report.reason) == (Found.SOME, "")
    assert [(gpu.index, gpu.memory_total_mib, gpu.mig) for gpu in report.gpus] == [(n, 81559, False) for n in range(8)]
    assert len(started_pids(path)) == 1


async def test_a_node_without_gpus_is_told_from_one_that_cannot_tell(path: Path) -> None:
    smi = asking(path)
    write_nvidia_smi(path, Answer())
    assert (await smi.fetch_gpus()).outcome is Found.NONE
    write_nvidia_smi(path, Answer(verbatim="Failed to initialize NVML: Unknown Error\n", code=255))
    assert (await smi.fetch_gpus()).outcome is Found.FAILED


async def test_a_failure_is_not_for_ever(path: Path) -> None:
    smi = asking(path)
    assert (await smi.fetch_gpus()).outcome is Found.FAILED
    write_nvidia_smi(path, Answer(fake_gpus(1)))
    assert (await smi.fetch_gpus()).outcome is Found.SOME


async def test_c20_a_driver_that_does_not_know_a_field_is_asked_for_fewer(path: Path) -> None:
    kept = ("index", "uuid", "memory.total", "name")
    write_nvidia_smi(path, Answer(tuple({name: gpu[name] for name in kept} for gpu in fake_gpus(2))))
    report = await asking(path).fetch_gpus()
    assert [(gpu.memory_total_mib, gpu.memory_used_mib) for gpu in report.gpus] == [(81559, None)] * 2
    assert 'Field "pci.bus_id" is not a valid field to query.' in report.reason
    assert len(started_pids(path)) == 3


async def test_one_that_knows_no_field_at_all_has_failed(path: Path) -> None:
    write_nvidia_smi(path, Answer(({"gpu": "0"},)))
    report = await asking(path).fetch_gpus()
    assert report.outcome is Found.FAILED
    assert "not a valid field" in report.reason


async def test_c21_a_wrapper_that_ignores_the_format_is_understood(path: Path, tmp_path: Path) -> None:
    real = write_nvidia_smi(tmp_path / "real", Answer(fake_gpus(1)))
    write_script(path, f'#!/bin/sh\nexec {real} "$1" --format=csv\n')
    report = await asking(path).fetch_gpus()
    assert [(gpu.memory_total_mib, gpu.utilization_percent) for gpu in report.gpus] == [(81559, 0)]
    assert report.reason == ""


async def test_c23_death_by_a_signal_is_told(path: Path) -> None:
    write_nvidia_smi(path, Answer(fake_gpus(2), signal=signal.SIGSEGV))
    report = await asking(path).fetch_gpus()
    assert (report.outcome, report.gpus) == (Found.FAILED, ())
    assert "SIGSEGV" in report.reason


async def test_c35_one_that_is_not_there_is_told_with_the_path(path: Path) -> None:
    report = await asking(path).fetch_gpus()
    assert (report.outcome, report.reason) == (Found.FAILED, f"nvidia-smi not found at {path}")
    report = await NvidiaSmi(environ={"PATH": "/no/where"}).fetch_gpus()
    assert report.reason == ("nvidia-smi not found: no nvidia-smi in /no/where; give its path with --nvidia-smi")


async def test_c35_it_is_found_in_the_path_that_is_given(path: Path) -> None:
    write_nvidia_smi(path, Answer(fake_gpus(1)))
    report = await NvidiaSmi(environ={"PATH": str(path.parent)}).fetch_gpus()
    assert report.outcome is Found.SOME


async def test_what_cannot_be_started_is_told(path: Path) -> None:
    write_script(path, "no program", 0o644)
    assert "is no executable file" in (await asking(path).fetch_gpus()).reason
    write_script(path, "no program")
    assert "cannot be started: Exec format error" in (await asking(path).fetch_gpus()).reason


async def all_ended(path: Path) -> None:
    """Those that were started: what was killed ends when the machine comes to it."""
    with trio.fail_after(60):
        while any(map(alive, started_pids(path))):  # noqa: ASYNC110 - other processes give no event
            await trio.sleep(0.01)


@pytest.mark.parametrize("forks", [False, True])
async def test_one_that_hangs_is_killed_and_asked_again_the_next_time(path: Path, *, forks: bool) -> None:
    smi = asking(path, timeout_s=1)
    write_nvidia_smi(path, Answer(hang=True, forks=forks))
    with trio.fail_after(60):
        report = await smi.fetch_gpus()
    assert report.outcome is Found.FAILED
    assert "has not answered for 1 s and was killed" in report.reason
    await all_ended(path)
    write_nvidia_smi(path, Answer(fake_gpus(1)))
    smi._timeout_s = 60
    assert (await smi.fetch_gpus()).outcome is Found.SOME


async def all_started(path: Path, *, forks: bool) -> tuple[int, ...]:
    """The pid of the one that was started, once it has written it and has its child: it may be given up before."""

    def begun() -> bool:
        pids = started_pids(path)
        return bool(pids) and (not forks or Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text() != "")

    with trio.fail_after(60):
        while not begun():  # noqa: ASYNC110 - other processes give no event
            await trio.sleep(0.01)
    return started_pids(path)


@pytest.mark.parametrize("forks", [False, True])
async def test_one_that_survives_sigkill_is_abandoned_and_never_piles_up(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, forks: bool
) -> None:
    """As in uninterruptible sleep: the signal is sent, and nothing happens."""
    smi = asking(path, timeout_s=0.5)
    write_nvidia_smi(path, Answer(hang=True, forks=forks))
    monkeypatch.setattr("llmgw_core.examine.process.os.killpg", lambda group, number: None)
    with trio.fail_after(60):
        first = await smi.fetch_gpus()
    started = await all_started(path, forks=forks)
    if forks:  # the wrapper dies of it, its child does not
        os.kill(started[0], signal.SIGKILL)
    for _ in range(3):
        with trio.fail_after(60):
            again = await smi.fetch_gpus()
        assert again.outcome is first.outcome is Found.FAILED
        assert "nvidia-smi has not answered for" in again.reason
        assert "(pid " in again.reason
        assert "cannot be killed" in again.reason
    assert started_pids(path) == started
    monkeypatch.undo()
    os.killpg(started[0], signal.SIGKILL)
    write_nvidia_smi(path, Answer(fake_gpus(1)))
    smi._timeout_s = 60
    with trio.fail_after(60):
        while (await smi.fetch_gpus()).outcome is not Found.SOME:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_it_delays_nothing_else(path: Path) -> None:
    """All turns of the loop come before the answer, which never comes: one that is waited for would be the first."""
    write_nvidia_smi(path, Answer(hang=True))
    answered = trio.Event()

    async def ask() -> None:
        await asking(path).fetch_gpus()
        answered.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            for _ in range(50):
                await trio.sleep(0.01)
            assert not answered.is_set()
            nursery.cancel_scope.cancel()
    await all_ended(path)


async def test_two_who_ask_at_once_start_one_after_the_other(path: Path) -> None:
    smi = asking(path, timeout_s=1)
    write_nvidia_smi(path, Answer(hang=True))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(smi.fetch_gpus)
            nursery.start_soon(smi.fetch_gpus)
            await trio.sleep(0.5)
            assert len([pid for pid in started_pids(path) if alive(pid)]) <= 1


async def test_one_who_gives_up_leaves_nothing_behind(path: Path) -> None:
    write_nvidia_smi(path, Answer(hang=True))
    with trio.move_on_after(1):
        await asking(path).fetch_gpus()
    await all_ended(path)

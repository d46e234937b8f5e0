"""What is made of the looks at a shard, look by look."""

from __future__ import annotations

import pytest
from attrs import evolve

from llmgw_core.engine import FailureKind, Health, Phase, Progress
from llmgw_core.model.catalog import HealthTimings
from llmgw_core.model.shard import ShardPhase
from llmgw_core.plan.health_watch import (
    Movement,
    Watched,
    after_probe,
    after_progress,
    failure_of,
    next_probe_s,
    next_progress_s,
    read_movement,
)

TIMINGS = HealthTimings(probe_every_s=2, misses=3, stall_s=120)
OK, LOADS, REFUSED = Health(Phase.READY), Health(Phase.STARTING, "it loads"), Health(Phase.UNREADY, "nothing listens")
STARTING, READY, UNREADY = ShardPhase.STARTING, ShardPhase.READY, ShardPhase.UNREADY


def watch(*looks: Health | tuple[Health, str], every_s: float = 2.0) -> Watched:
    watched, now = Watched(0.0), 0.0
    for look in looks:
        health, stranger = look if isinstance(look, tuple) else (look, "")
        now += every_s
        watched = after_probe(watched, health, stranger, TIMINGS, now)
    return watched


@pytest.mark.parametrize(
    ("looks", "phase", "reason"),
    [
        ((), STARTING, ""),
        ((REFUSED,), STARTING, "nothing listens"),
        ((REFUSED, LOADS, LOADS), STARTING, "it loads"),
        ((REFUSED,) * 500, STARTING, "nothing listens"),
        ((REFUSED, LOADS, OK), READY, ""),
        ((OK, REFUSED), READY, ""),
        ((OK, REFUSED, REFUSED), READY, ""),
        ((OK, REFUSED, REFUSED, REFUSED), UNREADY, "nothing listens"),
        ((OK, REFUSED, OK, REFUSED, REFUSED), READY, ""),
        ((OK, REFUSED, REFUSED, REFUSED, OK), READY, ""),
        ((OK, REFUSED, REFUSED, REFUSED, OK, REFUSED), READY, ""),
        (((OK, "port 1: a stranger"),), STARTING, "port 1: a stranger"),
        ((OK, (OK, "port 1: a stranger"), (OK, "s"), (OK, "port 1: a stranger")), UNREADY, "port 1: a stranger"),
    ],
)
def test_phases(looks: tuple[Health], phase: ShardPhase, reason: str) -> None:
    watched = watch(*looks)
    assert (watched.phase, watched.reason) == (phase, reason)


def test_unready_without_a_break_is_a_failure_and_a_break_counts() -> None:
    unready = watch(OK, REFUSED, REFUSED, REFUSED)  # since 8 s
    assert failure_of(REFUSED, unready, TIMINGS, 127.9) is None
    failure = failure_of(REFUSED, unready, TIMINGS, 128.0)
    assert failure is not None
    assert (failure.kind, failure.reason) == (
        FailureKind.STALLED,
        "stalled: unready for 120 s: nothing listens",
    )
    again = after_probe(after_probe(unready, OK, "", TIMINGS, 100), REFUSED, "", TIMINGS, 102)
    assert failure_of(REFUSED, again, TIMINGS, 200) is None


def test_an_engine_that_says_it_failed_has_failed() -> None:
    failure = failure_of(Health(Phase.FAILED, "engine dead"), watch(OK), TIMINGS, 4)
    assert failure is not None
    assert failure.reason == "engine dead"


@pytest.mark.parametrize(
    ("looks", "stalled_at"),
    [
        ([Movement(1, 5), Movement(1, 5)], 130.0),
        ([Movement(1, 5), Movement(1, 6)], None),
        ([Movement(0, 5), Movement(0, 5)], None),
        ([Movement(1, 5), Movement(1, 5), Movement(0, 5)], None),
        ([Movement(1, 5), None, Movement(1, 5)], 140.0),
        ([Movement(1, 9), Movement(1, 2)], None),
    ],
)
def test_a_stall_is_requests_and_no_movement(looks: list[Movement | None], stalled_at: float | None) -> None:
    watched = watch(OK)
    for number, look in enumerate(looks):
        watched = after_progress(watched, look, number * 10.0)
    if stalled_at is None:
        assert failure_of(OK, watched, TIMINGS, 1e9) is None
    else:
        assert failure_of(OK, watched, TIMINGS, stalled_at - 0.1) is None
        assert failure_of(OK, watched, TIMINGS, stalled_at) is not None


@pytest.mark.parametrize(("age_s", "wait_s"), [(0, 0.1), (1, 0.1), (5, 0.5), (20, 2), (1800, 2)])
def test_a_quick_engine_is_asked_quickly(age_s: float, wait_s: float) -> None:
    assert next_probe_s(Watched(100.0), TIMINGS, 100.0 + age_s) == pytest.approx(wait_s)
    assert next_probe_s(evolve(Watched(100.0), seen_ready=True), TIMINGS, 100.0 + age_s) == 2


def test_progress_is_looked_at_often_enough_for_a_short_stall() -> None:
    assert next_progress_s(TIMINGS) == 10
    assert next_progress_s(HealthTimings(stall_s=4)) == 1


METRICS = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model="a b} c"} 2.0
vllm:num_requests_running{engine="1"} 1 1700000000
vllm:num_requests_running_total 99
vllm:iteration_tokens_total_count{engine="0"} 1e3
broken{
vllm:iteration_tokens_total_count{engine="1"} NaNNaN
"""


def test_metrics_are_summed_over_all_label_sets() -> None:
    progress = Progress("/metrics", ("vllm:num_requests_running",), ("vllm:iteration_tokens_total_count",))
    assert read_movement(METRICS, progress) == Movement(3, 1000)
    assert read_movement("", progress) is None
    assert read_movement(METRICS, evolve(progress, counters=("other",))) is None

"""What a simulated shard's answers and its end mean."""

from __future__ import annotations

import pytest
from attrs import evolve

from llmgw_core.engine import Exit, FailureKind, Phase, Reply, ReplyKind, Settings
from llmgw_engine_sim import llmgw_explain_exit, llmgw_health_probe, llmgw_read_health, llmgw_widest_specs

HEAD, WORKER = llmgw_widest_specs()[0].shards


def test_only_the_head_is_asked() -> None:
    probe = llmgw_health_probe(HEAD)

    assert probe is not None
    assert str(probe.endpoint) == "127.0.0.1:18000"
    assert llmgw_health_probe(WORKER) is None


@pytest.mark.parametrize("metrics", [True, False])
def test_progress_is_watched_where_there_are_metrics(metrics: bool) -> None:
    probe = llmgw_health_probe(evolve(HEAD.replica, settings=Settings(metrics=metrics)).shards[0])

    assert probe is not None
    assert (probe.progress is not None) is metrics


@pytest.mark.parametrize(
    ("reply", "phase"),
    [
        (Reply(ReplyKind.REFUSED), Phase.STARTING),
        (Reply(ReplyKind.ANSWERED, 503), Phase.STARTING),
        (Reply(ReplyKind.ANSWERED, 200), Phase.READY),
        (Reply(ReplyKind.REFUSED, seen_ready=True), Phase.UNREADY),
        (Reply(ReplyKind.TIMED_OUT, seen_ready=True), Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 503, seen_ready=True), Phase.UNREADY),
    ],
)
def test_an_answer_means_a_phase(reply: Reply, phase: Phase) -> None:
    assert llmgw_read_health(HEAD, reply).phase is phase


@pytest.mark.parametrize(
    ("exit", "kind"),
    [
        (Exit(2, log_tail="usage: x\nllmgw-sim: error: argument --port: 'x'"), FailureKind.BAD_ARGUMENTS),
        (Exit(1, log_tail="llmgw-sim: rank 0: cannot listen on 1.2.3.4:1: in use"), FailureKind.PORT_IN_USE),
        (Exit(1, log_tail="llmgw-sim: rank 0: ready\nllmgw-sim: rank 0: rank 1 was lost"), FailureKind.PEER_LOST),
        (Exit(1, log_tail="llmgw-sim: rank 0: rank 1 of 2 did not join within 1 s"), FailureKind.PEER_LOST),
        (Exit(None, 9), FailureKind.KILLED),
        (Exit(None, 11), FailureKind.CRASHED),
        (Exit(0), FailureKind.CRASHED),
    ],
)
def test_an_unasked_exit_is_a_failure(exit: Exit, kind: FailureKind) -> None:
    failure = llmgw_explain_exit(exit)

    assert failure is not None
    assert failure.kind is kind


def test_an_exit_on_request_is_none() -> None:
    assert llmgw_explain_exit(Exit(1, log_tail="llmgw-sim: rank 1: rank 0 was lost", asked=True)) is None

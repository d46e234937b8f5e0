from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import Endpoint, Exit, FailureKind, Phase, Reply, ReplyKind, Shard
from llmgw_engine_sglang.failures import explain_exit
from llmgw_engine_sglang.health import health_probe, read_health
from llmgw_engine_sglang.widest import widest_specs

WIDEST = widest_specs()[0]
HEAD, WORKER = WIDEST.shards


def test_the_head_is_given_time_to_generate_a_token_and_workers_are_not_asked() -> None:
    probe = health_probe(HEAD)
    assert probe is not None
    assert (probe.endpoint, probe.path) == (Endpoint("127.0.0.1", 18000), "/health")
    assert probe.timeout_s > 20
    assert probe.progress is not None
    assert health_probe(WORKER) is None


def test_progress_is_watched_only_where_there_are_metrics() -> None:
    quiet = evolve(WIDEST, settings=evolve(WIDEST.settings, metrics=False))
    probe = health_probe(Shard(quiet, 0))
    assert probe is not None
    assert probe.progress is None


@pytest.mark.parametrize(
    ("reply", "before", "after"),
    [
        (Reply(ReplyKind.REFUSED), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.TIMED_OUT), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.BROKEN), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 200), Phase.READY, Phase.READY),
        (Reply(ReplyKind.ANSWERED, 503), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 404), Phase.STARTING, Phase.UNREADY),
    ],
)
def test_an_answer_means_what_sglang_does(reply: Reply, before: Phase, after: Phase) -> None:
    for seen_ready, phase in ((False, before), (True, after)):
        health = read_health(HEAD, Reply(reply.kind, reply.status, reply.body, seen_ready))
        assert health.phase is phase
        assert bool(health.reason) == (phase is not Phase.READY)


USAGE = "usage: launch_server.py [-h] --model-path MODEL_PATH\n" + "   [--x X]\n" * 100
FAREWELL = "Received sigquit from a child proces. It usually means the child failed.\n"


@pytest.mark.parametrize(
    ("exit", "kind", "reason"),
    [
        (
            Exit(2, log_tail=f"{USAGE}launch_server.py: error: unrecognized arguments: --enable_metrics\n"),
            FailureKind.BAD_ARGUMENTS,
            "launch_server.py: error: unrecognized arguments: --enable_metrics",
        ),
        (
            Exit(1, log_tail="ValueError: --enable-ep-moe is deprecated. Set another.\n"),
            FailureKind.BAD_ARGUMENTS,
            "ValueError: --enable-ep-moe is deprecated. Set another.",
        ),
        (
            Exit(None, 9, f"torch.OutOfMemoryError: CUDA out of memory.\n{FAREWELL}"),
            FailureKind.OUT_OF_MEMORY,
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            Exit(137, log_tail=f"RuntimeError: odd\n{FAREWELL}"),
            FailureKind.CRASHED,
            "one of its processes failed, and it ended with exit code 137; it said last: RuntimeError: odd",
        ),
        (Exit(137, log_tail="serving\n"), FailureKind.KILLED, "ended with exit code 137; it said last: serving"),
        (Exit(None, 9), FailureKind.KILLED, "ended with signal 9; it said nothing"),
        (
            Exit(None, 9, f"Watchdog timeout (self.watchdog_timeout=300)\n{FAREWELL}"),
            FailureKind.PEER_LOST,
            "Watchdog timeout (self.watchdog_timeout=300)",
        ),
        (
            Exit(1, log_tail="ERROR: [Errno 98] error while attempting to bind: address already in use\nINFO bye\n"),
            FailureKind.PORT_IN_USE,
            "ERROR: [Errno 98] error while attempting to bind: address already in use",
        ),
        (
            Exit(1, log_tail="  File 'a.py', line 3, in check_server_args\nAssertionError: only 1 or None\n"),
            FailureKind.BAD_CONFIGURATION,
            "AssertionError: only 1 or None",
        ),
        (
            Exit(1, log_tail="OSError: /models/m is not a local folder and is not a valid model identifier\n"),
            FailureKind.WEIGHTS,
            "OSError: /models/m is not a local folder and is not a valid model identifier",
        ),
        (
            Exit(0, log_tail="bye\n"),
            FailureKind.CRASHED,
            "ended with exit code 0 and nobody asked it to; it said last: bye",
        ),
    ],
)
def test_an_exit_is_explained_in_the_engines_own_words(exit: Exit, kind: FailureKind, reason: str) -> None:
    failure = explain_exit(exit)
    assert failure is not None
    assert (failure.kind, failure.reason) == (kind, reason)


@given(st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), st.text())
def test_an_exit_on_request_is_never_a_failure(code: int | None, signal: int | None, log: str) -> None:
    assert explain_exit(Exit(code, signal, log, asked=True)) is None

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import Endpoint, Exit, FailureKind, Phase, Reply, ReplyKind
from llmgw_engine_vllm.failures import explain_exit
from llmgw_engine_vllm.health import health_probe, read_health
from llmgw_engine_vllm.widest import widest_specs

HEAD, WORKER = widest_specs()[0].shards


def test_the_head_is_asked_on_its_own_node_and_workers_are_not() -> None:
    probe = health_probe(HEAD)
    assert probe is not None
    assert (probe.endpoint, probe.path) == (Endpoint("127.0.0.1", 18000), "/health")
    assert probe.progress is not None
    assert health_probe(WORKER) is None


@pytest.mark.parametrize(
    ("reply", "before", "after"),
    [
        (Reply(ReplyKind.REFUSED), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.TIMED_OUT), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.BROKEN), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 200), Phase.READY, Phase.READY),
        (Reply(ReplyKind.ANSWERED, 503), Phase.FAILED, Phase.FAILED),
        (Reply(ReplyKind.ANSWERED, 404), Phase.STARTING, Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 500), Phase.STARTING, Phase.UNREADY),
    ],
)
def test_an_answer_means_what_vllm_does(reply: Reply, before: Phase, after: Phase) -> None:
    for seen_ready, phase in ((False, before), (True, after)):
        health = read_health(HEAD, Reply(reply.kind, reply.status, reply.body, seen_ready))
        assert health.phase is phase
        assert bool(health.reason) == (phase is not Phase.READY)


USAGE = "usage: vllm [-h] [-v] {chat,serve} ...\n"
# As a real 0.32.0 ended, shortened: its engine core was killed.
NANOBIND = """\
nanobind: leaked 514 functions!
 - leaked function "insert_before"
 - ... skipped remainder
nanobind: this is likely caused by a reference counting issue in the binding code.
See https://nanobind.readthedocs.io/en/latest/refleaks.html
"""
LOGGED = "(APIServer pid=7) ERROR 11-30 09:26:07 [async_llm.py:906]"
ENGINE_CORE_KILLED = f"""\
(APIServer pid=7) WARNING 11-30 09:25:35 [system_utils.py:255] This can cause errors like `OSError: [Errno 24]`.
{LOGGED} AsyncLLM output_handler failed.
{LOGGED} Traceback (most recent call last):
{LOGGED}   File "/x/vllm/v1/engine/core_client.py", line 1235, in get_output_async
{LOGGED}     raise self._format_exception(outputs) from None
{LOGGED} vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.
INFO:     Application shutdown complete.
{NANOBIND}"""
POINTER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"


@pytest.mark.parametrize(
    ("code", "log", "kind", "reason"),
    [
        (
            2,
            f"{USAGE}vllm: error: unrecognized arguments: --enable-reasoning\nhint: see the release notes\n",
            FailureKind.BAD_ARGUMENTS,
            "vllm: error: unrecognized arguments: --enable-reasoning",
        ),
        (
            1,
            "INFO x\nOSError: [Errno 98] Address already in use\n",
            FailureKind.PORT_IN_USE,
            "OSError: [Errno 98] Address already in use",
        ),
        (
            1,
            f"torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\nConnection closed by peer\n{POINTER}",
            FailureKind.OUT_OF_MEMORY,
            "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB",
        ),
        (
            1,
            "ValueError: No available memory for the cache blocks.\n" + POINTER,
            FailureKind.OUT_OF_MEMORY,
            "ValueError: No available memory for the cache blocks.",
        ),
        (
            1,
            "huggingface_hub.errors.HFValidationError: Repo id must be\n",
            FailureKind.WEIGHTS,
            "huggingface_hub.errors.HFValidationError: Repo id must be",
        ),
        (
            1,
            "torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /x\n",
            FailureKind.PEER_LOST,
            "torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /x",
        ),
        (
            1,
            "pydantic_core.ValidationError: 1 validation error for ModelConfig\n",
            FailureKind.BAD_CONFIGURATION,
            "pydantic_core.ValidationError: 1 validation error for ModelConfig",
        ),
        (
            1,
            "AttributeError: 'SpeculativeConfig' object has no attribute 'get'\n" + POINTER,
            FailureKind.CRASHED,
            "ended with exit code 1; it said last: AttributeError: 'SpeculativeConfig' object has no attribute 'get'",
        ),
        (
            0,
            ENGINE_CORE_KILLED,
            FailureKind.CRASHED,
            f"ended with exit code 0 and nobody asked it to; it said last: {LOGGED} vllm.v1.engine.exceptions"
            ".EngineDeadError: EngineCore encountered an issue.",
        ),
        (
            0,
            f"INFO bye\n{NANOBIND}",
            FailureKind.CRASHED,
            "ended with exit code 0 and nobody asked it to; it said last: INFO bye",
        ),
        (0, "INFO bye\n", FailureKind.CRASHED, "ended with exit code 0 and nobody asked it to; it said last: INFO bye"),
        (2, "", FailureKind.CRASHED, "ended with exit code 2; it said nothing"),
    ],
)
def test_an_exit_is_explained_in_the_engines_own_words(code: int, log: str, kind: FailureKind, reason: str) -> None:
    failure = explain_exit(Exit(code, log_tail=log))
    assert failure is not None
    assert (failure.kind, failure.reason) == (kind, reason)


def test_a_signal_that_nobody_sent_is_a_kill() -> None:
    failure = explain_exit(Exit(None, signal=9, log_tail="INFO serving"))
    assert failure is not None
    assert failure.kind is FailureKind.KILLED
    assert "signal 9" in failure.reason


@given(st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), st.text())
def test_an_exit_on_request_is_never_a_failure(code: int | None, signal: int | None, log: str) -> None:
    assert explain_exit(Exit(code, signal, log, asked=True)) is None

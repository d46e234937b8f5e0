"""What a llama.cpp shard's answers and its end mean."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import Endpoint, Exit, FailureKind, Phase, ReplicaSpec, Reply, ReplyKind, Settings, Slot
from llmgw_engine_llamacpp import llmgw_explain_exit, llmgw_health_probe, llmgw_read_health, llmgw_widest_specs

HEAD, WORKER = llmgw_widest_specs()[0].shards
LOADING = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


def keyless(address: str = "10.0.0.1", settings: Settings | None = None) -> ReplicaSpec:
    slot = Slot(("llama-server",), Endpoint(address, 18000), "10.0.0.1", "/run/llmgw/x")
    return ReplicaSpec("x/0", "llamacpp", "/x.gguf", "x", (slot,), settings=settings or Settings())


def test_the_head_is_asked_for_its_health_and_its_progress() -> None:
    probe = llmgw_health_probe(keyless().shards[0])

    assert probe is not None
    assert (probe.endpoint, probe.path) == (Endpoint("10.0.0.1", 18000), "/health")
    assert probe.progress is not None
    assert probe.progress.running == ("llamacpp:requests_processing",)


@pytest.mark.parametrize(("listens", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.7", "10.0.0.7")])
def test_a_shard_that_listens_everywhere_is_asked_at_home(listens: str, asked: str) -> None:
    probe = llmgw_health_probe(keyless(listens).shards[0])

    assert probe is not None
    assert probe.endpoint.address == asked


def test_metrics_that_would_not_answer_are_not_asked_for() -> None:
    probe = llmgw_health_probe(keyless(settings=Settings(metrics=False)).shards[0])
    assert probe is not None
    assert probe.progress is None


def test_metrics_that_are_guarded_are_asked_for_with_the_key() -> None:
    probe = llmgw_health_probe(HEAD)
    assert probe is not None
    assert probe.api_key == HEAD.replica.api_key is not None
    assert probe.progress is not None


def test_a_worker_is_never_asked() -> None:
    assert llmgw_health_probe(WORKER) is None


@pytest.mark.parametrize(
    ("reply", "phase"),
    [
        (Reply(ReplyKind.REFUSED), Phase.STARTING),
        (Reply(ReplyKind.TIMED_OUT), Phase.STARTING),
        (Reply(ReplyKind.BROKEN), Phase.STARTING),
        (Reply(ReplyKind.ANSWERED, 503, LOADING), Phase.STARTING),  # E11
        (Reply(ReplyKind.ANSWERED, 404), Phase.STARTING),
        (Reply(ReplyKind.ANSWERED, 200, '{"status":"ok"}'), Phase.READY),
        (Reply(ReplyKind.ANSWERED, 200, '{"status":"ok"}', seen_ready=True), Phase.READY),
        (Reply(ReplyKind.REFUSED, seen_ready=True), Phase.UNREADY),
        (Reply(ReplyKind.TIMED_OUT, seen_ready=True), Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 503, LOADING, seen_ready=True), Phase.UNREADY),
        (Reply(ReplyKind.ANSWERED, 500, seen_ready=True), Phase.UNREADY),
    ],
)
def test_an_answer_means_a_phase(reply: Reply, phase: Phase) -> None:
    health = llmgw_read_health(HEAD, reply)

    assert health.phase is phase
    assert bool(health.reason) is (phase is not Phase.READY)


SPEC_TYPE = (
    "warn: LLAMA_ARG_HOST environment variable is set, but will be overwritten by command line argument --host\n"
    "warning: no usable GPU found, --gpu-layers option will be ignored\n"
    'error while handling argument "--spec-type": unknown speculative decoding type without draft model\n\n'
    "usage:\n--spec-type [none|ngram-cache]\n"
)
BIND = (
    "0.00.006.018 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 40077\n"
    "0.00.006.038 I srv    operator(): operator(): cleaning up before exit...\n"
    "0.00.006.130 E srv  llama_server: exiting due to HTTP server error\n"
)
GARBAGE = (
    "0.00.006.150 E gguf_init_from_reader: invalid magic characters: 'garb', expected 'GGUF'\n"
    "0.00.006.158 E llama_model_load: error loading model: llama_model_loader: failed to load model from g.gguf\n"
    "0.00.006.674 E srv  llama_server: exiting due to model loading error\n"
)
MISSING = (
    "0.00.006.083 E llama_model_load: error loading model: llama_model_loader: failed to load model from /nope.gguf\n"
    "0.00.006.089 E srv    load_model: failed to load model, '/nope.gguf'\n"
    "0.00.006.682 E srv  llama_server: exiting due to model loading error\n"
)
NO_MEMORY = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\n"
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
)
LEGACY = "legacy speculative option '-mtp' is disabled; use --spec-type mtp:n_max=1\nusage: llama-server [options]"


@pytest.mark.parametrize(
    ("exit", "kind", "said"),
    [
        (Exit(1, log_tail=SPEC_TYPE), FailureKind.BAD_ARGUMENTS, "unknown speculative decoding type"),  # A33
        (Exit(1, log_tail="error: invalid argument: -dio"), FailureKind.BAD_ARGUMENTS, "-dio"),  # A23
        (Exit(1, log_tail="error: unknown argument: --threads-http"), FailureKind.BAD_ARGUMENTS, "http"),  # A39
        (Exit(1, log_tail=LEGACY), FailureKind.BAD_ARGUMENTS, "'-mtp' is disabled"),  # A29
        (Exit(2, log_tail="x: error: unrecognized arguments: --p"), FailureKind.BAD_ARGUMENTS, "--p"),  # A41
        (Exit(1, log_tail=BIND), FailureKind.PORT_IN_USE, "start: couldn't bind HTTP server socket"),  # E12
        (Exit(1, log_tail="Failed to create server socket", node_rank=1), FailureKind.PORT_IN_USE, "socket"),
        (Exit(1, log_tail=GARBAGE), FailureKind.WEIGHTS, "invalid magic characters: 'garb'"),
        (Exit(1, log_tail=MISSING), FailureKind.WEIGHTS, "load_model: failed to load model, '/nope.gguf'"),
        (Exit(1, log_tail=NO_MEMORY), FailureKind.OUT_OF_MEMORY, "cudaMalloc failed: out of memory"),
        (
            Exit(None, 6, "a.cpp:644: Remote RPC server crashed or returned malformed response"),  # E21
            FailureKind.PEER_LOST,
            "Remote RPC server crashed",
        ),
        (Exit(134, log_tail="0.00.029.392 E Failed to connect to 127.0.0.1:1"), FailureKind.PEER_LOST, "127.0.0.1:1"),
        (Exit(1, log_tail="RPC server version mismatch: 7.0.0"), FailureKind.BAD_CONFIGURATION, "7.0.0"),  # E28
        (Exit(None, 9), FailureKind.KILLED, "signal 9"),
        (Exit(None, 11, "last words"), FailureKind.CRASHED, "signal 11; its last line: last words"),
        (Exit(0, node_rank=1), FailureKind.CRASHED, "the RPC worker ended by itself with exit code 0"),
        (Exit(0), FailureKind.CRASHED, "the server ended by itself with exit code 0"),
    ],
)
def test_an_unasked_exit_is_a_failure_with_the_line_that_tells_most(exit: Exit, kind: FailureKind, said: str) -> None:
    failure = llmgw_explain_exit(exit)

    assert failure is not None
    assert failure.kind is kind
    assert said in failure.reason
    assert "\n" not in failure.reason


@pytest.mark.parametrize(
    "exit",
    [Exit(0), Exit(1), Exit(143), Exit(None, 15), Exit(None, 9), Exit(None, 6, "Remote RPC server crashed")],
    ids=str,
)
def test_an_exit_on_request_is_no_failure(exit: Exit) -> None:  # E22
    assert llmgw_explain_exit(evolve(exit, asked=True)) is None


@given(st.text(), st.integers() | st.none(), st.integers() | st.none())
def test_any_exit_is_explained(log: str, code: int | None, signal: int | None) -> None:
    failure = llmgw_explain_exit(Exit(code, signal, log))

    assert failure is not None
    assert failure.reason

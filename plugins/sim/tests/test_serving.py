"""The simulated engine as real processes. Each waits for what it needs, with a deadline that fails."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from llmgw_core.engine import Settings
from llmgw_engine_sim import llmgw_health_probe, llmgw_widest_specs
from llmgw_engine_sim.testing import DEADLINE_S, Sim, Start, await_true, free_port, sims, start_ranks


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with sims(tmp_path) as start:
        yield start


@pytest.fixture
def ready(start: Start) -> Sim:
    sim = start("sim", "--context-length", "64")
    sim.await_log("ready")
    return sim


CHAT = {"model": "m", "messages": [{"role": "user", "content": "two words"}], "max_tokens": 3}
TEXT = {"model": "m", "prompt": "two words", "max_tokens": 3}


def test_health_is_503_while_it_loads_and_then_200(start: Start) -> None:
    loading = start("loading", "--load-time", "60")

    assert loading.ask("/health")[0] == 503
    assert loading.ask("/v1/chat/completions", CHAT)[0] == 503

    loaded = start("loaded", "--load-time", "0.01")
    loaded.await_log("ready")
    assert loaded.ask("/health") == (200, {"status": "ok"})


def test_it_says_what_it_is(ready: Sim) -> None:
    assert ready.ask("/v1/models")[1]["data"][0]["id"] == "m"
    assert ready.ask("/version")[1]["version"]


def test_a_chat_is_answered_the_same_each_time(ready: Sim) -> None:
    status, answer = ready.ask("/v1/chat/completions", CHAT)

    assert status == 200
    assert len(answer["choices"][0]["message"]["content"].split()) == 3
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert ready.ask("/v1/chat/completions", CHAT) == (status, answer)


def test_a_stream_says_the_same_as_the_plain_answer(ready: Sim) -> None:
    plain = ready.ask("/v1/chat/completions", CHAT)[1]

    events = ready.ask("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}})[1]

    *chunks, done = events.removesuffix("\n\n").split("\n\n")
    *parts, usage = (json.loads(chunk.removeprefix("data: ")) for chunk in chunks)
    assert done == "data: [DONE]"
    assert usage["usage"] == plain["usage"]
    assert (
        "".join(part["choices"][0]["delta"].get("content", "") for part in parts)
        == plain["choices"][0]["message"]["content"]
    )
    assert parts[-1]["choices"][0]["finish_reason"] == "length"


def test_a_text_is_completed_plain_and_streamed(ready: Sim) -> None:
    plain = ready.ask("/v1/completions", TEXT)[1]["choices"][0]["text"]
    events = ready.ask("/v1/completions", {**TEXT, "stream": True})[1].removesuffix("\n\n").split("\n\n")

    parts = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert "".join(part["choices"][0]["text"] for part in parts) == plain
    assert not any("usage" in part for part in parts)


def test_texts_are_embedded(ready: Sim) -> None:
    status, answer = ready.ask("/v1/embeddings", {"model": "m", "input": ["a", "b"]})

    assert status == 200
    assert [each["index"] for each in answer["data"]] == [0, 1]
    assert answer["data"][0]["embedding"] != answer["data"][1]["embedding"]


def test_the_metrics_that_the_plugin_watches_are_there(ready: Sim) -> None:
    probe = llmgw_health_probe(evolve(llmgw_widest_specs()[0], settings=Settings()).shards[0])
    assert probe is not None
    assert probe.progress is not None

    status, page = ready.ask(probe.progress.path)

    assert status == 200
    for name in (*probe.progress.running, *probe.progress.counters):
        assert f"\n{name} 0\n" in page


def test_the_log_tells_loading_and_each_request(ready: Sim) -> None:
    ready.ask("/v1/completions", TEXT)
    ready.ask("/v1/completions", {})

    ready.await_log("rank 0: request 2: /v1/completions answered with 400\n")
    assert "rank 0: loading m (0 s)\n" in ready.log
    assert "rank 0: ready\n" in ready.log
    assert "rank 0: request 1: /v1/completions answered with 200\n" in ready.log


def test_tokens_are_counted(ready: Sim) -> None:
    ready.ask("/v1/completions", TEXT)

    metrics = ready.ask("/metrics")[1].splitlines()
    assert "sim:tokens_total 3" in metrics
    assert "sim:requests_running 0" in metrics


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/nope", None, 404),
        ("/v1/chat/completions", None, 405),
        ("/health", {}, 405),
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", [], 400),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/chat/completions", {**CHAT, "model": "other"}, 404),
        ("/v1/chat/completions", {**CHAT, "messages": "x"}, 400),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 0}, 400),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 63}, 400),
        ("/v1/completions", {"model": "m"}, 400),
        ("/v1/embeddings", {"model": "m", "input": 1}, 400),
    ],
)
def test_a_wrong_request_gets_an_error_as_openai_shapes_it(ready: Sim, path: str, body: Any, status: int) -> None:
    got, answer = ready.ask(path, body)

    assert got == status
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["message"]


def test_what_is_no_http_is_refused_and_harms_nobody(ready: Sim) -> None:
    with socket.create_connection(("127.0.0.1", ready.port), timeout=DEADLINE_S) as stream:
        stream.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert stream.recv(100).startswith(b"HTTP/1.1 400 ")

    assert ready.ask("/health")[0] == 200


def test_a_key_is_wanted_below_v1_only(start: Start) -> None:
    sim = start("sim", SIM_API_KEY="sesame")
    sim.await_log("ready")

    assert sim.ask("/health")[0] == 200
    assert sim.ask("/v1/models")[0] == 401
    assert sim.ask("/v1/models", authorization="Bearer wrong")[0] == 401
    assert sim.ask("/v1/models", authorization="Bearer sesame")[0] == 200


def test_metrics_can_be_off(start: Start) -> None:
    sim = start("sim", "--no-metrics")

    assert sim.ask("/metrics")[0] == 404


def slow_stream(sim: Sim, tokens: int) -> socket.socket:
    """A stream that has begun."""
    stream = socket.create_connection(("127.0.0.1", sim.port), timeout=DEADLINE_S)
    body = json.dumps({**TEXT, "max_tokens": tokens, "stream": True}).encode()
    stream.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b"200" in stream.recv(100)
    return stream


def read_to_end(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(65536), b""))


def test_sigterm_lets_a_stream_end_and_ends_with_0(start: Start) -> None:
    sim = start("sim", "--tokens-per-second", "50")
    with slow_stream(sim, tokens=25) as stream:
        sim.process.send_signal(signal.SIGTERM)
        received = read_to_end(stream)

    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert sim.await_exit() == 0


def test_sigterm_closes_an_idle_connection(ready: Sim) -> None:
    with socket.create_connection(("127.0.0.1", ready.port), timeout=DEADLINE_S) as stream:
        ready.process.send_signal(signal.SIGTERM)
        assert read_to_end(stream) == b""

    assert ready.await_exit() == 0


def test_a_second_sigterm_does_not_wait(start: Start) -> None:
    sim = start("sim", "--tokens-per-second", "0.1")
    with slow_stream_begun(sim):
        sim.process.send_signal(signal.SIGTERM)
        sim.await_log("finishing")
        sim.process.send_signal(signal.SIGTERM)

        assert sim.await_exit() == 0


def slow_stream_begun(sim: Sim) -> socket.socket:
    sim.await_log("ready")
    stream = slow_stream(sim, tokens=16)
    await_true(lambda: "yes" if "requests_running 1" in sim.ask("/metrics")[1] else "", "a running request")
    return stream


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(start: Start, stream: bool) -> None:
    sim = start("sim", "--tokens-per-second", "0.1", "--max-sequences", "1")
    sim.await_log("ready")
    client = http.client.HTTPConnection("127.0.0.1", sim.port, timeout=DEADLINE_S)
    client.request("POST", "/v1/completions", json.dumps({**TEXT, "stream": stream}))
    await_true(lambda: "yes" if "requests_running 1" in sim.ask("/metrics")[1] else "", "a running request")

    client.close()

    await_true(lambda: "yes" if "requests_running 0" in sim.ask("/metrics")[1] else "", "a free place")


def test_requests_over_the_limit_wait(start: Start) -> None:
    sim = start("sim", "--tokens-per-second", "0.1", "--max-sequences", "1")
    with slow_stream_begun(sim), slow_stream(sim, tokens=1):
        await_true(lambda: "yes" if "requests_waiting 1" in sim.ask("/metrics")[1] else "", "a waiting request")


def test_a_port_in_use_is_said(ready: Sim, start: Start) -> None:
    second = start("second", "--port", str(ready.port))

    assert second.await_exit() == 1
    assert f"cannot listen on 127.0.0.1:{ready.port}: the port is in use" in second.log


# Several processes.


def test_rank_0_serves_when_all_have_joined(start: Start) -> None:
    head, *workers = start_ranks(start, count=3)

    head.await_log("ready")

    assert "all 3 ranks joined" in head.log
    assert head.ask("/v1/completions", TEXT)[0] == 200
    assert not any("listening" in worker.log for worker in workers)


def test_rank_0_does_not_serve_before(start: Start) -> None:
    at = ("--nnodes", "3", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    head = start("head", *at)
    start("worker", *at, "--node-rank", "1").await_log("joined")

    assert "listening" not in head.log


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_worker_takes_all_others_down(start: Start, how: signal.Signals) -> None:
    head, first, second = start_ranks(start, count=3)
    head.await_log("ready")

    second.process.send_signal(how)

    assert head.await_exit() == first.await_exit() == 1
    assert "rank 2 was lost" in head.log
    assert "rank 0 was lost" in first.log


def test_a_lost_head_takes_the_workers_down(start: Start) -> None:
    head, worker = start_ranks(start)
    head.await_log("ready")

    head.process.kill()

    assert worker.await_exit() == 1
    assert "rank 0 was lost" in worker.log


def test_a_head_that_waits_in_vain_says_for_whom(start: Start) -> None:
    at = ("--nnodes", "3", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    head = start("head", *at, "--join-timeout", "1")

    assert head.await_exit() == 1
    assert "rank 1, 2 of 3 did not join within 1 s" in head.log


def test_a_worker_without_a_head_gives_up(start: Start) -> None:
    address = f"127.0.0.1:{free_port()}"
    worker = start("w", "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", address, "--join-timeout", "0.2")

    assert worker.await_exit() == 1
    assert f"could not join rank 0 at {address} within 0.2 s" in worker.log


def test_a_worker_of_another_replica_is_refused(start: Start) -> None:
    address = f"127.0.0.1:{free_port()}"
    start("head", "--nnodes", "2", "--dist-init-addr", address)
    stranger = start("stranger", "--nnodes", "3", "--node-rank", "1", "--dist-init-addr", address)

    assert stranger.await_exit() == 1
    assert "refused rank 1: it counts 3 nodes, rank 0 counts 2" in stranger.log


def test_a_stranger_at_the_rendezvous_harms_nobody(start: Start) -> None:
    port = free_port()
    at = ("--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{port}")
    head = start("head", *at)
    await_true(lambda: "yes" if _sends_garbage(port) else "", "the rendezvous")

    start("worker", *at, "--node-rank", "1")

    head.await_log("ready")


def _sends_garbage(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\n")
            return stream.recv(100).startswith(b"refused")
    except ConnectionRefusedError:
        return False


def test_a_process_that_waits_for_others_ends_on_sigterm(start: Start) -> None:
    address = f"127.0.0.1:{free_port()}"
    head = start("head", "--nnodes", "2", "--dist-init-addr", address)
    await_true(lambda: "yes" if _sends_garbage(int(address.rpartition(":")[2])) else "", "the rendezvous")

    head.process.send_signal(signal.SIGTERM)

    assert head.await_exit() == 0

"""What is counted and logged: metrics, histograms, tokens, lines of the access log."""

import errno
import json
import os
from pathlib import Path
from time import monotonic

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from llmgw_core.gateway.access_log import AccessLog, Entry
from llmgw_core.gateway.board import USES, Board, Uses
from llmgw_core.gateway.books import read_usage
from llmgw_core.testing.gateway_rig import a_gateway, user_key
from llmgw_core.testing.http_words import LAST_CHUNK, NO_MORE, answer, chunk, event, get, post, stream_head, wish
from llmgw_core.testing.scripted_engine import DEADLINE_S, Act

GOOD = answer()
USAGE = b'"usage":{"prompt_tokens":12,"total_tokens":46,"completion_tokens":34,"prompt_tokens_details":null}'
PLAIN = b'{"id":"x","choices":[{"message":{"content":"say \\"usage\\":{\\"prompt_tokens\\":9}"}}],' + USAGE + b"}"
RESPONSES = (
    b'{"object":"response","usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":5},'
    b'"output_tokens":34,"output_tokens_details":{"reasoning_tokens":3}},"x":1}'
)
LAST_EVENT = b'data: {"choices":[],' + USAGE + b"}\n\n"
NULL_EVENT = b'data: {"choices":[{"delta":{"content":"\\"usage\\":{\\"prompt_tokens\\":9"}}],"usage":null}\n\n'
REPLICA = '{model="m",replica="m/1"}'


@pytest.mark.parametrize(
    ("tail", "tokens"),
    [
        (PLAIN, (12, 34)),
        (RESPONSES, (12, 34)),
        (b'{"usage": {"prompt_tokens" : 12, "total_tokens" : 12}}', (12, 0)),
        (NULL_EVENT + LAST_EVENT + b"data: [DONE]\n\n", (12, 34)),
        (LAST_EVENT + NULL_EVENT, (0, 0)),
        (NULL_EVENT, (0, 0)),
        (b'{"choices":[{"message":{"content":"\\"usage\\":{\\"prompt_tokens\\":9}"}}]}', (0, 0)),
        (b'{"usage":{"prompt_tokens":"many"}}', (0, 0)),
        (b"", (0, 0)),
        (b"\xff\x00", (0, 0)),
    ],
)
def test_tokens_are_read_from_an_answers_end(tail: bytes, tokens: tuple[int, int]) -> None:
    assert read_usage(tail) == tokens


async def _counted(*pieces: bytes) -> dict[str, float]:
    async with a_gateway() as rig:
        await rig.route(await rig.engine(pieces))
        await rig.ask()
        return rig.counts()


def _tokens(counts: dict[str, float]) -> tuple[float, ...]:
    names = (f"llmgw_gateway_{each}_tokens_total" for each in ("prompt", "completion"))
    return tuple(counts.get(name + REPLICA, 0) for name in names)


async def test_usage_of_a_plain_answer_is_counted() -> None:
    assert _tokens(await _counted(answer(b" " * 10_000 + PLAIN))) == (12, 34)


@pytest.mark.parametrize("cut", range(0, len(LAST_EVENT), 7))
async def test_usage_is_counted_wherever_its_event_is_split(cut: int) -> None:  # G16
    events = [stream_head(), *[chunk(NULL_EVENT)] * 30]
    split_in_packets = [*events, chunk(LAST_EVENT)[:cut], chunk(LAST_EVENT)[cut:], LAST_CHUNK]
    assert _tokens(await _counted(*split_in_packets)) == (12, 34)
    if cut:
        split_in_chunks = [*events, chunk(LAST_EVENT[:cut]), chunk(LAST_EVENT[cut:]), LAST_CHUNK]
        assert _tokens(await _counted(*split_in_chunks)) == (12, 34)


async def test_usage_byte_by_byte() -> None:
    whole = stream_head() + chunk(LAST_EVENT) + LAST_CHUNK
    assert _tokens(await _counted(*[whole[each : each + 1] for each in range(len(whole))])) == (12, 34)
    assert _tokens(await _counted(stream_head(), *[chunk(b"%c" % each) for each in LAST_EVENT], NO_MORE)) == (12, 34)


async def test_usage_before_many_numbers_is_counted() -> None:
    # llama.cpp: an embedding's usage stands before its data
    body = (
        b'{"model":"m","object":"list","usage":{"prompt_tokens":12,"total_tokens":12},"data":['
        + b"0.1," * 9999
        + b"0]}"
    )
    assert _tokens(await _counted(answer(body))) == (12, 0)


async def test_the_metrics_can_be_read_and_are_right() -> None:
    async with a_gateway(authenticates=True) as rig:
        engine = await rig.engine([answer(PLAIN)], [answer(status="400 No")], [stream_head(), event(1), Act.CLOSE])
        await rig.route(engine, name="org/m", keys=[user_key("secret")])
        key = "x-api-key: secret"
        for _ in range(2):
            await rig.ask(post(wish("org/m"), key))
        client = await rig.client()
        await client.send(post(wish("org/m"), key))
        await client.rest()
        await rig.ask(post(wish("nope"), key))
        await rig.ask(post())
        told = await rig.ask(get("/metrics", key))
        assert told.fields["content-type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in text_string_to_metric_families(told.body.decode())}
    labels = {"model": "org/m", "replica": "org/m/1"}

    def samples(name: str) -> dict[str, float]:
        family = families[f"llmgw_gateway_{name}"]
        found = [each for each in family.samples if labels.items() <= each.labels.items()]
        return {each.labels.get("status") or each.labels.get("cause") or each.name: each.value for each in found}

    (routed,) = families["llmgw_gateway_routes_timestamp_seconds"].samples
    assert routed.value == rig.version / 1000
    assert not families["llmgw_gateway_control_plane_heard_timestamp_seconds"].samples
    assert samples("requests") == {"2xx": 2, "4xx": 1}
    assert samples("errors") == {"lost_in_answer": 1}
    assert samples("in_flight") == {"llmgw_gateway_in_flight": 0}
    assert samples("prompt_tokens") == {"llmgw_gateway_prompt_tokens_total": 12}
    own = {each.labels["status"]: each.value for each in families["llmgw_gateway_own_answers"].samples}
    assert own == {"404": 1, "401": 1}
    used = {
        each.name: each.value
        for name in ("key_requests", "key_prompt_tokens", "key_completion_tokens")
        for each in families[f"llmgw_gateway_{name}"].samples
        if each.labels == {"key": "k1", "model": "org/m"}
    }
    assert [used[f"llmgw_gateway_key_{each}_total"] for each in ("requests", "prompt_tokens")] == [3, 12]


async def test_histograms_add_up() -> None:
    async with a_gateway() as rig:
        rig.clock.runs = True
        engine = await rig.engine([answer()])
        await rig.route(engine)
        begun = monotonic()
        for _ in range(7):
            await rig.ask()
        took_s = monotonic() - begun
        text = rig.worker.metrics().decode()
    for name in ("first_byte_seconds", "request_seconds"):
        [family] = [each for each in text_string_to_metric_families(text) if each.name == f"llmgw_gateway_{name}"]
        buckets = [each.value for each in family.samples if each.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert [each.labels["le"] for each in family.samples if each.name.endswith("_bucket")][-1] == "+Inf"
        [count] = [each.value for each in family.samples if each.name.endswith("_count")]
        [total] = [each.value for each in family.samples if each.name.endswith("_sum")]
        assert buckets[-1] == count == 7
        assert 0 < total < took_s


async def test_a_retried_request_is_counted_where_it_was_tried_and_where_it_was_answered() -> None:
    async with a_gateway() as rig:
        bad, good = await rig.engine([Act.CLOSE]), await rig.engine([GOOD])
        await rig.route(bad, good)
        for _ in range(2):
            await rig.ask()
        counts = rig.counts()
    bad_labels, good_labels = '{model="m",replica="m/1"}', '{model="m",replica="m/2"}'
    assert counts['llmgw_gateway_errors_total{cause="lost_before_answer",model="m",replica="m/1"}'] == 1
    assert counts[f"llmgw_gateway_retries_total{good_labels}"] == 1
    assert counts[f"llmgw_gateway_request_seconds_count{good_labels}"] == 2
    assert f"llmgw_gateway_request_seconds_count{bad_labels}" not in counts


def test_pairs_of_key_and_model_that_find_no_room_share_the_first() -> None:
    board = Board()
    uses = Uses(board.rows[0])
    cells = {uses.cell(key, 0) for key in range(USES + 10)}
    assert len(cells) == USES
    assert Uses(board.rows[0]).cell(5, 0) == uses.cell(5, 0)


# The access log.


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_each_request_is_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)
    async with a_gateway(log=log, authenticates=True) as rig:
        rig.clock.runs = True
        rig.nursery.start_soon(log.write_for_ever)
        bad = await rig.engine([Act.CLOSE])
        good = await rig.engine([answer(PLAIN)])
        await rig.route(bad, good, keys=[user_key("secret")])
        key = "x-api-key: secret"
        for each in range(2):
            await rig.ask(post(None, key, f"x-request-id: r{each}"))
        await rig.ask(post(wish("nope\n"), key, 'x-request-id: "\n'.strip()))
        await rig.ask(get('/v1/models/"x"', key))
        await rig.ask(b"nonsense\r\n\r\n")
        await rig.ask(get("/v1/models", "x-request-id: unknown-key"))
        broken = await rig.client()
        await broken.send(b"GET /v1/models?q HTTP/1.1\r\nx-request-id: no-host\r\n\r\n")
        await broken.rest()
    told = lines_of(path)
    assert len(told) == 7
    retried = next(each for each in told if each.get("retries"))
    assert {name: retried[name] for name in ("status", "key", "model", "replica", "tokens_in", "tokens_out")} == {
        "status": 200,
        "key": "k1",
        "model": "m",
        "replica": "m/2",
        "tokens_in": 12,
        "tokens_out": 34,
    }
    assert retried["bytes"] == len(PLAIN)
    total, first = retried["total_s"], retried["first_s"]
    assert isinstance(total, float)
    assert isinstance(first, float)
    assert 0 < first <= total
    assert "cause" not in retried
    assert [each["status"] for each in told[2:]] == [404, 404, 400, 401, 400]
    assert told[5]["id"] == "unknown-key"
    assert told[6]["id"] == "no-host"
    assert told[6]["path"] == "/v1/models?q"
    assert "secret" not in path.read_text()


async def test_a_client_that_left_is_a_499_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)
    async with a_gateway(log=log) as rig:
        rig.nursery.start_soon(log.write_for_ever)
        engine = await rig.engine([Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await engine.until(lambda: engine.requests)
        await client.leave()
        await engine.until(lambda: engine.left)
    [told] = lines_of(path)
    assert (told["status"], told["cause"]) == (499, "client_left")


async def test_a_client_that_leaves_after_the_last_event_of_a_stream_has_missed_nothing(tmp_path: Path) -> None:
    """As OpenAI's clients do: they wait for no end of the chunks."""
    path = tmp_path / "access.log"
    log = AccessLog(path)
    done = chunk(b"data: [DONE]\n\n")
    async with a_gateway(log=log) as rig:
        rig.nursery.start_soon(log.write_for_ever)
        engine = await rig.engine([stream_head(), event(1), done, Act.SILENCE])
        await rig.route(engine)
        client = await rig.client()
        await client.send(post())
        await client.head()
        assert [await client.event(), await client.event()][1] == b"data: [DONE]\n\n"
        await client.stream.aclose()
        await engine.until(lambda: engine.left)
        assert not [name for name in rig.counts() if "errors_total" in name]
    [told] = lines_of(path)
    assert (told["status"], "cause" in told) == (200, False)


@pytest.mark.parametrize("said", [b"no HTTP\r\n\r\n", post(b"x" * 100), post(None, "host: two")])
async def test_what_is_refused_before_it_is_whole_has_an_id_too_in_the_answer_and_in_the_log(
    tmp_path: Path, said: bytes
) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)
    async with a_gateway(log=log, body_bytes=50) as rig:
        rig.nursery.start_soon(log.write_for_ever)
        await rig.route()
        client = await rig.client()
        await client.send(said)
        refused = await client.answer()
    assert refused.status in (400, 413)
    [told] = lines_of(path)
    assert told["id"] == refused.fields["x-request-id"] != ""


def entry(name: str) -> Entry:
    return Entry(0.0, name, "::1", "GET", "/", 200, 0.1)


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    log = AccessLog(path)
    for name in ("one", "two", "three"):
        log.add(entry(name))
        assert log._write() == 0
        if name == "one":
            path.rename(moved)
        elif name == "two":
            path.unlink()
    assert [each["id"] for each in lines_of(moved)] == ["one"]
    assert [each["id"] for each in lines_of(path)] == ["three"]


async def test_a_full_disk_loses_lines_and_no_request(tmp_path: Path) -> None:
    log = AccessLog(Path("/dev/full"))
    async with a_gateway(log=log) as rig:
        rig.nursery.start_soon(log.write_for_ever)
        await rig.route(await rig.engine([GOOD]))
        for _ in range(3):
            assert (await rig.ask()).status == 200
        await rig.until(lambda: log.lost_lines == 3)


def test_a_line_that_was_torn_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)
    room = [10]
    write = os.write

    def write_little(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        written = write(file, bytes(data)[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write_little)
    log.add(entry("lost"))
    assert log._write() == 1
    room[0] = 10_000
    log.add(entry("kept"))
    assert log._write() == 0
    torn, kept = path.read_text().splitlines()
    assert len(torn) == 10
    assert json.loads(kept)["id"] == "kept"


def test_what_cannot_be_written_in_time_is_lost_and_counted(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "access.log")
    for _ in range(200_000):
        log.add(entry("x" * 100))
    assert log.lost_lines
    assert sum(map(len, log._take())) < 9_000_000


async def test_a_pipe_that_nobody_reads_keeps_no_gateway_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        AccessLog(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(path)
    entry = Entry(0.0, "i", "c", "GET", "/" + "x" * 4096, 200, 0.0)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.write_for_ever)
            for _ in range(40):
                log.add(entry)
            await trio.sleep(0.5)  # the pipe is full
            nursery.cancel_scope.cancel()
    os.close(reader)  # and the thread ends


async def test_who_is_refused_and_for_what_stands_in_the_log(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    log = AccessLog(file)
    async with a_gateway(log=log, authenticates=True) as rig:
        keys = [user_key("sk-live", "k1", requests_per_minute=1), user_key("sk-old", "k2", expires_at=rig.now[0] - 1)]
        await rig.route(await rig.engine([answer()]), keys=keys)
        for key, model in (("sk-old", "m"), ("sk-live", "nope"), ("sk-live", "m"), ("sk-live", "m")):
            await rig.ask(post(wish(model), f"authorization: Bearer {key}"))
    assert log._write() == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [(line["status"], line.get("key"), line.get("model"), line.get("cause")) for line in lines]
    assert told == [
        (401, "k2", None, "invalid_api_key"),
        (404, "k1", "nope", "model_not_found"),
        (200, "k1", "m", None),
        (429, "k1", "m", "rate_limit_exceeded"),
    ]


async def test_a_gateway_that_stops_tells_whoever_it_cuts_and_logs_them(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    log = AccessLog(file)
    async with a_gateway(log=log) as rig:
        await rig.route(await rig.engine([stream_head(), event(1), Act.SILENCE], [Act.SILENCE]))
        streamed, plain = await rig.client(), await rig.client()
        await streamed.send(post())
        await streamed.head()
        await streamed.event()
        await plain.send(post())
        await rig.until(lambda: rig.in_flight() == 2)
        rig.worker.begin_stop()
        assert (await rig.ask(get("/health"))).json == {"status": "stopping"}
        for client in rig.worker.clients():
            client.cut()
        assert b'"code":"stream_broken"' in await streamed.event()
        assert (await plain.answer()).error["code"] == "stopped"
    assert log._write() == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted((line["status"], line["cause"]) for line in lines if "cause" in line) == [
        (200, "stopped"),
        (503, "stopped"),
    ]


async def test_before_it_has_routes_nobody_is_told_that_a_key_is_wrong() -> None:
    async with a_gateway(authenticates=True) as rig:
        assert (await rig.ask(post(wish(), "authorization: Bearer sk-good"))).error["code"] == "no_routes"
        assert (await rig.ask(get("/v1/models"))).status == 503
        assert (await rig.ask(get("/health"))).json == {"status": "no routes"}


async def test_what_is_cancelled_before_it_is_written_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(path)
    log.add(Entry(1.0, "r1", "192.0.2.1", "POST", "/v1/chat/completions", 200, 0.1))
    with trio.CancelScope() as scope:
        scope.cancel()
        await log._flush()
    await log._flush()
    assert [each["id"] for each in lines_of(path)] == ["r1"]

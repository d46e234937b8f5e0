"""What people use: the `openai` package, sync and async, and curl; the engines behind are written down."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest
import trio
from openai.types.chat import ChatCompletionToolParam

from llmgw_core.model.route import ModelRoute
from llmgw_core.testing.gateway_rig import Rig, a_gateway, user_key
from llmgw_core.testing.http_words import NO_MORE, answer, chunk, stream_head
from llmgw_core.testing.scripted_engine import Act, Step

T = TypeVar("T")
KEY = "sk-llmgw-users"
LIMIT_S = 60.0
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
ASKED: Any = [{"role": "user", "content": "Hi"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def completion(message: dict[str, Any], reason: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
    return answer(json.dumps(whole).encode())


def piece(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return said({"choices": [choice]})


def said(more: dict[str, Any]) -> bytes:
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **more}
    return chunk(f"data: {json.dumps(whole)}\n\n".encode())


DONE = chunk(b"data: [DONE]\n\n") + NO_MORE
STREAM: Sequence[Step] = [
    stream_head(),
    piece({"role": "assistant"}),
    piece({"content": "naï"}),
    piece({"content": "ve"}),
]


@asynccontextmanager
async def serving(*script: Step, **limits: Any) -> AsyncIterator[Rig]:
    async with a_gateway(authenticates=True) as rig:
        engine = await rig.engine(script)
        await rig.route(engine, keys=[user_key(KEY, **limits)])
        yield rig


def sync_client(rig: Rig, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{rig.port}/v1", api_key=key, max_retries=0, timeout=LIMIT_S)


async def in_thread(work: Callable[[], T]) -> T:
    with trio.fail_after(LIMIT_S):
        return await trio.to_thread.run_sync(work)


async def test_a_completion() -> None:
    async with serving(completion({"content": "naïve 🤖"})) as rig:

        def ask() -> Any:
            with sync_client(rig) as client:
                return client.chat.completions.with_raw_response.create(model="m", messages=ASKED)

        raw = await in_thread(ask)
        found = raw.parse()
    assert found.choices[0].message.content == "naïve 🤖"
    assert found.usage.total_tokens == 10
    assert raw.headers["x-request-id"]


async def test_a_stream_with_its_usage() -> None:
    usage = said({"choices": [], "usage": USAGE})
    async with serving(*STREAM, piece({}, "stop"), usage, DONE) as rig:

        def ask() -> list[Any]:
            options: Any = {"include_usage": True}
            with (
                sync_client(rig) as client,
                client.chat.completions.create(model="m", messages=ASKED, stream=True, stream_options=options) as got,
            ):
                return list(got)

        found = await in_thread(ask)
    assert "".join(each.choices[0].delta.content or "" for each in found if each.choices) == "naïve"
    assert found[-1].usage.total_tokens == 10


async def test_tools_in_one_piece_and_in_many() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
    begun = {"index": 0, "id": "t1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    parts = [{"index": 0, "function": {"arguments": text}} for text in ('{"ci', 'ty": "K', 'öln"}')]
    deltas = [piece({"tool_calls": [each]}) for each in (begun, *parts)]
    async with a_gateway(authenticates=False) as rig:
        whole = await rig.engine([completion({"content": None, "tool_calls": [call]}, "tool_calls")])
        streamed = await rig.engine([stream_head(), *deltas, piece({}, "tool_calls"), DONE])
        rig.take(
            ModelRoute("whole", targets=(whole.target,)),
            ModelRoute("streamed", targets=(streamed.target,)),
        )

        def ask() -> tuple[str, str]:
            with sync_client(rig) as client:
                one = client.chat.completions.create(model="whole", messages=ASKED, tools=[WEATHER])
                many = client.chat.completions.create(model="streamed", messages=ASKED, tools=[WEATHER], stream=True)
                calls: Any = one.choices[0].message.tool_calls
                pieces = [each for part in many for each in part.choices[0].delta.tool_calls or ()]
                texts = [each.function.arguments or "" for each in pieces if each.function]
                return calls[0].function.arguments, "".join(texts)

        assert await in_thread(ask) == ('{"city": "Köln"}', '{"city": "Köln"}')
    assert json.loads(whole.requests[0].body)["tools"] == [WEATHER]


# Its generators of a stream that has ended are left to the collector (openai 3.57), which trio tells of.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_async_client() -> None:
    async with serving(*STREAM, DONE) as rig:
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{rig.port}/v1", api_key=KEY, max_retries=0)
        with trio.fail_after(LIMIT_S):
            async with client:
                got = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
                texts = [each.choices[0].delta.content or "" async for each in got]
    assert "".join(texts) == "naïve"


async def test_the_list_of_models() -> None:
    async with serving(answer()) as rig:

        def ask() -> tuple[list[str], str]:
            with sync_client(rig) as client:
                return [each.id for each in client.models.list()], client.models.retrieve("m").id

        assert await in_thread(ask) == (["m"], "m")


async def fails(rig: Rig, error: type[openai.APIError], key: str = KEY, model: str = "m") -> Any:
    def ask() -> Any:
        with sync_client(rig, key) as client, pytest.raises(error) as raised:
            list(client.chat.completions.create(model=model, messages=ASKED, stream=True))
        return raised.value

    return await in_thread(ask)


async def test_its_errors_are_those_of_openai() -> None:
    async with serving(Act.CLOSE, requests_per_minute=2) as rig:
        assert (await fails(rig, openai.AuthenticationError, key="sk-wrong")).code == "invalid_api_key"
        assert (await fails(rig, openai.NotFoundError, model="nope")).code == "model_not_found"
        assert (await fails(rig, openai.InternalServerError)).status_code == 502
        assert (await fails(rig, openai.InternalServerError)).status_code == 502
        limited = await fails(rig, openai.RateLimitError)
        assert int(limited.response.headers["retry-after"]) >= 1


async def test_a_broken_stream_raises() -> None:  # G19
    async with serving(*STREAM, Act.CLOSE) as rig:
        assert "closed the connection within its answer" in str(await fails(rig, openai.APIError))


async def curl(rig: Rig, *words: str) -> str:
    """What it prints; fails where it fails."""
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    command = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", f"{LIMIT_S:g}", *words]
    run = partial(subprocess.run, capture_output=True, text=True, check=True)
    done = await in_thread(lambda: run([*command, f"http://127.0.0.1:{rig.port}/v1/chat/completions"]))
    return str(done.stdout)


@pytest.mark.parametrize(
    "words", [[], ["--http1.0"], ["-H", "Transfer-Encoding: chunked"]], ids=["1.1", "1.0", "chunked"]
)
async def test_curl(words: list[str], tmp_path: Path) -> None:
    async with serving(completion({"content": "hello"})) as rig:
        body = json.dumps({"model": "m", "messages": ASKED})
        told = await curl(rig, *words, "-H", f"Authorization: Bearer {KEY}", "--json", body)
        assert json.loads(told)["usage"] == USAGE


async def test_curl_with_a_body_of_two_megabytes_waits_for_no_timeout(tmp_path: Path) -> None:  # G26
    large = tmp_path / "body.json"
    large.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2_000_000}]}))
    async with serving(completion({"content": "hello"})) as rig:
        words = ("-H", f"Authorization: Bearer {KEY}", "-H", "Expect: 100-continue", "--json", f"@{large}")
        patience = ("--expect100-timeout", f"{LIMIT_S - 1:g}")
        told = await curl(rig, *patience, "--write-out", "%{stderr}%{time_total}", *words)
    assert json.loads(told)["usage"] == USAGE


async def test_curl_reads_a_stream() -> None:
    async with serving(*STREAM, DONE) as rig:
        body = json.dumps({"model": "m", "stream": True, "messages": ASKED})
        told = await curl(rig, "--no-buffer", "-H", f"x-api-key: {KEY}", "--json", body)
    assert told.endswith("data: [DONE]\n\n")

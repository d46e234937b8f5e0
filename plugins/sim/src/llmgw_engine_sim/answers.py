"""What the simulated engine says: OpenAI's requests in, OpenAI's answers out.

Pure and deterministic: the same request gets the same words, the same id and the same counts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

from attrs import field, frozen

_WORDS: Final = ("seven", "wizards", "box", "while", "five", "lazy", "dwarfs", "jump", "over", "quick", "foxes")
_DEFAULT_TOKENS: Final = 16
_DIMENSIONS: Final = 8


class Refused(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error", code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = render_json({"error": {"message": message, "type": kind, "param": None, "code": code}})


@frozen
class Job:
    """A completion to be generated."""

    chat: bool
    model: str
    prompt: str
    tokens: int
    prompt_tokens: int
    stream: bool
    stream_usage: bool
    id: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        kind = "chatcmpl" if self.chat else "cmpl"
        object.__setattr__(self, "id", f"{kind}-{self._seed:08x}")

    @property
    def _seed(self) -> int:
        return zlib.crc32(f"{self.model}\0{self.prompt}\0{self.tokens}".encode("utf-8", "replace"))

    def word(self, at: int) -> str:
        return ("" if at == 0 else " ") + _WORDS[(self._seed + at) % len(_WORDS)]

    @property
    def text(self) -> str:
        return "".join(map(self.word, range(self.tokens)))

    @property
    def usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self.tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens, "total_tokens": total}


def render_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def read_body(body: bytes, served: str) -> dict[str, Any]:
    """The request as an object, for a model that is served here."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise Refused(400, "the body is not a JSON object")
    if not isinstance(request.get("model"), str):
        raise Refused(400, "'model' is missing or not a string")
    if request["model"] != served:
        raise Refused(404, f"the model {request['model']!r} does not exist", "not_found_error", "model_not_found")
    return request


def read_job(request: dict[str, Any], chat: bool, context_length: int) -> Job:
    prompt = _read_chat(request) if chat else _read_texts(request, "prompt")
    tokens = request.get("max_completion_tokens", request.get("max_tokens"))
    tokens = _DEFAULT_TOKENS if tokens is None else tokens
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise Refused(400, f"'max_tokens' is not a whole number from 1: {tokens!r}")
    counted = _count(prompt)
    if counted + tokens > context_length:
        said = f"{counted} tokens of prompt and {tokens} of answer exceed the context length of {context_length}"
        raise Refused(400, said, code="context_length_exceeded")
    options = request.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return Job(chat, request["model"], prompt, tokens, counted, request.get("stream") is True, usage)


def _read_chat(request: dict[str, Any]) -> str:
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Refused(400, "'messages' is missing or not a list of messages")
    return "\n".join(_read_content(message.get("content")) for message in messages)


def _read_content(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _read_texts(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return "\n".join(map(str, value))
    raise Refused(400, f"{name!r} is missing or neither a string nor a list")


def _count(text: str) -> int:
    """Words stand for tokens."""
    return max(1, len(text.split()))


def render_answer(job: Job) -> bytes:
    message = {"message": {"role": "assistant", "content": job.text}} if job.chat else {"text": job.text}
    choice = {"index": 0, **message, "logprobs": None, "finish_reason": "length"}
    kind = "chat.completion" if job.chat else "text_completion"
    return render_json({**_head(job, kind), "choices": [choice], "usage": job.usage})


def render_chunks(job: Job) -> Iterator[bytes]:
    """One event per token, then the end, the usage when it was asked for, and `[DONE]`."""
    for at in range(job.tokens):
        yield _event(job, [_piece(job, job.word(at), first=at == 0, reason=None)])
    yield _event(job, [_piece(job, None, first=False, reason="length")])
    if job.stream_usage:
        yield _event(job, [], usage=job.usage)
    yield b"data: [DONE]\n\n"


def _event(job: Job, choices: list[dict[str, Any]], **more: object) -> bytes:
    kind = "chat.completion.chunk" if job.chat else "text_completion"
    return b"data: " + render_json({**_head(job, kind), "choices": choices, **more}) + b"\n\n"


def _head(job: Job, kind: str) -> dict[str, Any]:
    return {"id": job.id, "object": kind, "created": 0, "model": job.model}


def _piece(job: Job, text: str | None, first: bool, reason: str | None) -> dict[str, Any]:
    if not job.chat:
        return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": reason}
    role = {"role": "assistant"} if first else {}
    content = {} if text is None else {"content": text}
    return {"index": 0, "delta": {**role, **content}, "logprobs": None, "finish_reason": reason}


def render_embeddings(request: dict[str, Any]) -> bytes:
    given = request.get("input")
    _read_texts(request, "input")
    texts = [given] if isinstance(given, str) else [str(each) for each in given or ()]
    data = [{"object": "embedding", "index": at, "embedding": _embed(text)} for at, text in enumerate(texts)]
    counted = sum(map(_count, texts))
    usage = {"prompt_tokens": counted, "total_tokens": counted}
    return render_json({"object": "list", "data": data, "model": request["model"], "usage": usage})


def _embed(text: str) -> list[float]:
    seeds = (zlib.crc32(f"{at}\0{text}".encode("utf-8", "replace")) for at in range(_DIMENSIONS))
    return [round(seed / 2**31 - 1, 6) for seed in seeds]


def render_models(served: str, context_length: int) -> bytes:
    model = {"id": served, "object": "model", "created": 0, "owned_by": "llmgw-sim", "max_model_len": context_length}
    return render_json({"object": "list", "data": [model]})

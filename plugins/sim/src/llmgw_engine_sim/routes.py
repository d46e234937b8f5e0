"""Which request gets which answer, and when: the simulated engine's API."""

from __future__ import annotations

import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from llmgw_engine_sim.answers import (
    Job,
    Refused,
    read_body,
    read_job,
    render_answer,
    render_chunks,
    render_embeddings,
    render_json,
    render_models,
)
from llmgw_engine_sim.faults import Script
from llmgw_engine_sim.http import EVENTS, Request, Response
from llmgw_engine_sim.options import Options


class Api:
    """The state of one server: whether it is loaded, what runs, what was counted."""

    def __init__(self, options: Options, key: str | None, script: Script) -> None:
        self._options = options
        self._key = key
        self._script = script
        self._slots = trio.CapacityLimiter(options.max_sequences)
        self._tokens = 0
        self._gets: dict[str, Callable[[], Response]] = {
            "/health": self._health,
            "/version": self._version,
            "/metrics": self._metrics,
            "/v1/models": self._models,
        }
        self._posts = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"}
        self.loaded = False
        self.answered = 0

    async def handle(self, request: Request) -> Response:
        try:
            return await self._route(request)
        except Refused as refused:
            return Response(refused.status, refused.body)

    async def _route(self, request: Request) -> Response:
        get = self._gets.get(request.path)
        if get is None and request.path not in self._posts:
            raise Refused(404, f"no such path: {request.path}", "not_found_error")
        if request.path.startswith("/v1/"):
            self._authorize(request.headers.get("authorization", ""))
        wanted = "GET" if get else "POST"
        if request.method != wanted:
            raise Refused(405, f"{request.path} wants {wanted}, not {request.method}")
        return get() if get else await self._post(request)

    def _authorize(self, given: str) -> None:
        if self._key is None:
            return
        if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {self._key}".encode()):
            raise Refused(401, "the API key is missing or wrong", "authentication_error", "invalid_api_key")

    def _health(self) -> Response:
        if not self.loaded:
            raise Refused(503, "the model is being loaded", "unavailable_error")
        if self._script.unready:
            raise Refused(503, "the engine is not well", "unavailable_error")
        return Response(200, render_json({"status": "ok"}))

    def _version(self) -> Response:
        from importlib.metadata import version

        return Response(200, render_json({"version": version("llmgw-engine-sim")}))

    def _models(self) -> Response:
        return Response(200, render_models(self._options.served_model_name, self._options.context_length))

    def _metrics(self) -> Response:
        if not self._options.metrics:
            raise Refused(404, "metrics are off (--no-metrics)", "not_found_error")
        slots = self._slots.statistics()
        values = {
            "sim:requests_running": ("gauge", slots.borrowed_tokens),
            "sim:requests_waiting": ("gauge", slots.tasks_waiting),
            "sim:tokens_total": ("counter", self._tokens),
        }
        lines = (f"# TYPE {name} {kind}\n{name} {value}\n" for name, (kind, value) in values.items())
        return Response(200, "".join(lines).encode(), "text/plain; version=0.0.4")

    async def _post(self, request: Request) -> Response:
        if not self.loaded:
            raise Refused(503, "the model is being loaded", "unavailable_error")
        body = read_body(request.body, self._options.served_model_name)
        if request.path == "/v1/embeddings":
            async with self._slot():
                await self._script.before_token()
            return Response(200, render_embeddings(body))
        job = read_job(body, request.path == "/v1/chat/completions", self._options.context_length)
        if job.stream:
            return Response(200, self._stream(job), EVENTS)
        async with self._slot():
            for _ in range(job.tokens):
                await self._generate_token()
        return Response(200, render_answer(job))

    async def _stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        async with self._slot():
            for at, chunk in enumerate(render_chunks(job)):
                if at < job.tokens:
                    await self._generate_token()
                yield chunk

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """One of the sequences that may run at the same time, once one is free."""
        me = object()
        await self._slots.acquire_on_behalf_of(me)
        try:
            yield
        finally:
            self._slots.release_on_behalf_of(me)

    async def _generate_token(self) -> None:
        speed = self._options.tokens_per_second
        await trio.sleep(1 / speed if speed else 0)
        await self._script.before_token()
        self._tokens += 1

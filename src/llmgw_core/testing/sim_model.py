"""Sim models in a catalog's words, and requests to their replicas as a client makes them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

REQUEST_S = 90.0
QUICK_HEALTH = {"probe_every_s": 0.2, "misses": 5}
"""On a busy machine a probe or two may come too late."""


@frozen
class Hold:
    """What sim engines do not do as long as a test says so: `loading`, `health`, `tokens` or `stop`."""

    file: Path
    what: str

    @property
    def flags(self) -> tuple[str, str]:
        return f"--fault-hold-{self.what}", str(self.file)

    def take(self) -> None:
        self.file.touch()

    def release(self) -> None:
        self.file.unlink(missing_ok=True)


def sim_model(
    name: str,
    *extra_args: str,
    replicas: int = 1,
    labels: Mapping[str, str] | None = None,
    source: str = "",
    engine: str = "sim",
    health: Mapping[str, float] | None = None,
    more_profiles: Mapping[str, Mapping[str, Any]] | None = None,
    **profile: Any,
) -> str:
    """A model with a profile of its name, in TOML; one GPU, if nothing else is said, and anybody may ask its engine."""
    timings = {**QUICK_HEALTH, **(health or {})}
    all_have = {"engine": engine, "engine_key": False}
    own = {**all_have, "gpus_per_node": 1, "extra_args": list(extra_args), "health": timings, **profile}
    profiles = {name: own, **{other: {**all_have, **given} for other, given in (more_profiles or {}).items()}}
    model = {"source": source or f"sim/{name}", "replicas": replicas, "profiles": list(profiles)}
    tables = {f"models.{name}": {**model, "labels": dict(labels or {})}}
    tables |= {f"profiles.{other}": dict(given) for other, given in profiles.items()}
    return "\n".join(line for table, values in tables.items() for line in _table(table, values)) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{name}]"
    yield from (f"{json.dumps(key)} = {_toml(value)}" for key, value in values.items())


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@contextmanager
def asked(address: str, model: str, **more: Any) -> Iterator[http.client.HTTPResponse]:
    """The answer to a chat completion, as its head has come."""
    body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 8, **more}
    connection = http.client.HTTPConnection(address, timeout=REQUEST_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.OK, answer.read()
        yield answer
    finally:
        connection.close()


def running_requests(address: str) -> int:
    """How many the engine works on."""
    connection = http.client.HTTPConnection(address, timeout=REQUEST_S)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return next(int(line.split()[1]) for line in lines if line.startswith("sim:requests_running "))


def complete(address: str, model: str) -> str:
    """What the model says."""
    with asked(address, model) as answer:
        said: str = json.load(answer)["choices"][0]["message"]["content"]
        return said


def streamed(answer: http.client.HTTPResponse) -> Iterator[str]:
    """The pieces of a streamed answer until its `[DONE]`; an AssertionError where it breaks off before."""
    for line in answer:
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        if data:
            said = json.loads(data)
            assert "choices" in said, said
            yield said["choices"][0].get("delta", {}).get("content") or ""
    raise AssertionError("the stream broke off")

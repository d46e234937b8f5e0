"""Users who never stop asking: plain and streamed requests through the gateway, each looked at to its end."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import define, field

REQUEST_S = 60.0
TOKENS = 12


class Unanswered(Exception):
    """A request that failed, or whose answer is not whole."""


@define
class Users:
    """One for each way of asking each model."""

    address: str
    models: Sequence[str]
    key: str = ""
    answered: int = 0
    failures: list[str] = field(factory=list)
    _enough: threading.Event = field(factory=threading.Event)
    _lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """All of them, as long as the block runs."""
        threads = [
            threading.Thread(target=self._ask_again_and_again, args=(model, streamed), daemon=True)
            for model in self.models
            for streamed in (False, True)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._enough.set()
            for thread in threads:
                thread.join(REQUEST_S)

    def _ask_again_and_again(self, model: str, streamed: bool) -> None:
        while not self._enough.is_set():
            try:
                ask_model(self.address, model, self.key, streamed=streamed)
            except Unanswered as error:
                with self._lock:
                    self.failures.append(f"{model}, {'streamed' if streamed else 'plain'}: {error}")
            else:
                with self._lock:
                    self.answered += 1


def ask_model(address: str, model: str, key: str = "", *, streamed: bool = False) -> str:
    """What the model says; raises `Unanswered`."""
    wanted = {"model": model, "max_tokens": TOKENS, "messages": [{"role": "user", "content": "Who are you?"}]}
    body = json.dumps({**wanted, "stream": streamed})
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    connection = http.client.HTTPConnection(address, timeout=REQUEST_S)
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise Unanswered(f"{str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise Unanswered(f"{answer.status}: {text[:200]}")
    return _read_stream(text) if streamed else str(json.loads(text)["choices"][0]["message"]["content"])


def _read_stream(text: str) -> str:
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        raise Unanswered(f"a stream without its end: {text[-200:]!r}")
    choices = [choice for event in events[:-1] for choice in json.loads(event).get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)

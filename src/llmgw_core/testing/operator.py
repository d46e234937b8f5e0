"""An operator's questions without a command's start, and over one link: both cost many times an answer."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import trio
from attrs import define, field, frozen

from llmgw_core.net.call import Server, call
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.wire.message import PROTOCOL, Answer, Ask, Hello, Refused

ANSWER_S = 60.0
"""Only a test that fails takes so long."""


@frozen(eq=False)
class _Question:
    what: str
    arguments: dict[str, Any]
    answer: Future[Any] = field(factory=Future)


@define(eq=False)
class Operator:
    """Asks one question after the other, from whichever thread; a link that has ended is made anew."""

    server: Server
    name: str
    credentials: CredentialFiles
    _questions: SimpleQueue[_Question | None] = field(factory=SimpleQueue)
    _thread: threading.Thread | None = None
    _starting: threading.Lock = field(factory=threading.Lock)

    def ask(self, what: str, **arguments: Any) -> Any:
        """The control plane's answer; raises what the link does, an AssertionError where the answer is another."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=trio.run, args=(self._converse,), name="operator")
                self._thread.start()
        question = _Question(what, arguments)
        self._questions.put(question)
        return question.answer.result(3 * ANSWER_S)

    def end(self) -> None:
        if self._thread is not None:
            self._questions.put(None)
            self._thread.join()

    async def _converse(self) -> None:
        question = await self._next()
        while question is not None:
            asked = question
            try:
                async with call(self.server, self.credentials, _now()) as link:
                    asked.answer.set_result(await _first_answer(link, self.name, asked))
                    question = await self._answer_more(link)
            except Exception as error:
                if asked.answer.done():
                    raise
                asked.answer.set_exception(error)
                question = await self._next()

    async def _answer_more(self, link: Link) -> _Question | None:
        """Until something goes wrong: the question that is to be asked on another link, if any."""
        while question := await self._next():
            try:
                question.answer.set_result(await _answer(link, question))
            except LinkClosed:
                return question
            except Exception as error:
                question.answer.set_exception(error)
                return await self._next()
        return None

    async def _next(self) -> _Question | None:
        return await trio.to_thread.run_sync(self._questions.get)


async def _first_answer(link: Link, name: str, question: _Question) -> Any:
    with trio.fail_after(ANSWER_S):
        await link.say(Hello(PROTOCOL, name, "0.1.0"))
        await link.hear()
    return await _answer(link, question)


async def _answer(link: Link, question: _Question) -> Any:
    with trio.fail_after(ANSWER_S):
        await link.say(Ask(1, question.what, question.arguments))
        answer = await link.hear()
    if isinstance(answer, Refused):
        raise LinkClosed(answer.reason)
    assert isinstance(answer, Answer), answer
    return answer.value


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock

"""Asks the control plane, as an operator."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llmgw_core.cli.context import Context
    from llmgw_core.net.link import Link

ANSWER_S = 700.0
"""For one answer; an engine-check on a node is the longest."""

LINKS_AT_ONCE = 50


MOST_REFUSALS = 10
"""On end; who follows something then gives up."""


class NotAnswered(LlmgwError):
    """What the control plane said instead of an answer."""


class NotHeard(NotAnswered):
    """It does not hear this operator, or not now."""


class Patience:
    """Of who follows something: a control plane that is away may come back, one that refuses on end will not hear."""

    def __init__(self) -> None:
        self.refusals = 0

    def ask(self, context: Context, what: str, **arguments: Any) -> Any:
        """The answer; `None`, and why, while there is none."""
        try:
            answer = ask(context, what, **arguments)
        except Exception as error:
            inner = self.bear(error)
            if type(inner) is NotAnswered:
                raise inner from None
            click.echo(f"llmgw: not reached: {printable_text(str(inner))}", err=True)
            return None
        self.refusals = 0
        return answer

    def bear(self, error: Exception) -> Exception:
        """What it is, where it may pass; raises it where it does not."""
        inner = _inner(error)
        self.refusals = self.refusals + 1 if isinstance(inner, NotHeard) else 0
        if self.refusals == MOST_REFUSALS:
            raise inner
        return inner


def ask(context: Context, what: str, *, within_s: float = ANSWER_S, **arguments: Any) -> Any:
    """The answer to one question; raises `NotReached`, `LinkClosed` or `NotAnswered`."""
    import trio

    async def ask_in_time() -> Any:
        with trio.move_on_after(within_s):
            return (await _ask_all(context, [(what, arguments)]))[0]
        raise NotHeard(f"the control plane has not answered within {within_s:g} s")

    return trio.run(ask_in_time)


def ask_all(context: Context, questions: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The answers, in order, over one link."""
    import trio

    return trio.run(_ask_all, context, questions)


def ask_each(context: Context, questions: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The answers, in order, or the errors in their places: all are asked at once, each over a link of its own."""
    import trio

    answers: list[Any] = [None] * len(questions)

    async def ask_one(index: int, links: trio.CapacityLimiter) -> None:
        async with links:
            try:
                (answers[index],) = await _ask_all(context, [questions[index]])
            except LlmgwError as error:
                answers[index] = error

    async def ask_at_once() -> None:
        links = trio.CapacityLimiter(LINKS_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for index in range(len(questions)):
                nursery.start_soon(ask_one, index, links)

    trio.run(ask_at_once)
    return answers


async def _ask_all(context: Context, questions: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    from datetime import UTC, datetime
    from importlib.metadata import version

    from llmgw_core.cli.identity import identity_files
    from llmgw_core.model.identity import Role
    from llmgw_core.net.call import call, parse_server
    from llmgw_core.net.tls import require_own
    from llmgw_core.pki.files import read_certificate
    from llmgw_core.pki.validity import expiry_warning
    from llmgw_core.wire.message import PROTOCOL, Hello

    kept = context.resolve()
    files = identity_files(kept.identity)
    now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by this machine's clock
    # With a node's certificate this would be that node, and take its agent's place.
    operator = require_own(files, Role.OPERATOR)
    if warning := expiry_warning(read_certificate(files.certificate).not_valid_after_utc, now):
        _warn(f"your {warning} (on the authority's host: `llmgw ca renew {operator} --role operator`)")
    async with call(parse_server(kept.server), files, now) as link:
        await link.say(Hello(PROTOCOL, operator, version("llmgw-core")))
        await _hear_one(link)
        return [await _ask_one(link, number, *question) for number, question in enumerate(questions)]


@cache
def _warn(text: str) -> None:
    """Once, however often something is asked."""
    click.echo(f"llmgw: warning: {text}", err=True)


async def _ask_one(link: Link, number: int, what: str, arguments: dict[str, Any]) -> Any:
    from llmgw_core.wire.message import Answer, Ask, Failed

    await link.say(Ask(number, what, arguments))
    while True:
        match await _hear_one(link):
            case Answer(id=id, value=value) if id == number:
                return value
            case Failed(id=id, reason=reason) if id == number:
                raise NotAnswered(reason)


async def _hear_one(link: Link) -> Any:
    import trio

    from llmgw_core.wire.message import Refused

    try:
        with trio.fail_after(ANSWER_S):
            message = await link.hear()
    except trio.TooSlowError:
        raise NotHeard(f"the control plane has not answered within {ANSWER_S:g} s") from None
    if isinstance(message, Refused):
        raise NotHeard(message.reason)
    return message


def watch(seconds: float, render: Callable[[], str]) -> None:
    """Show again and again until interrupted; a control plane that is away may come back.

    On a cleared screen; in a file or a pipe, each time below a line with the time, and an empty line after it.
    """
    import time

    is_screen = sys.stdout.isatty()
    while True:
        text = _rendered(render)
        click.clear()
        now = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        if not show(text if is_screen else f"{now}\n{text}\n"):
            return
        time.sleep(seconds)


def _rendered(render: Callable[[], str]) -> str:
    try:
        return render()
    except Exception as error:
        return f"not reached: {printable_text(why_not_reached(error))}"


def why_not_reached(error: Exception) -> str:
    """What is said of a control plane that is away; raises the error where it is another."""
    return str(_inner(error))


def _inner(error: Exception) -> Exception:
    """The first of a link that several tasks saw ending; raises what is no such thing."""
    from llmgw_core.net.call import NotReached
    from llmgw_core.net.link import LinkClosed

    if isinstance(error, NotReached | LinkClosed | NotAnswered):
        return error
    if not isinstance(error, ExceptionGroup):
        raise error
    expected, others = error.split(LlmgwError)
    if others is not None or expected is None:
        raise error
    inner: Exception = expected
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    return inner

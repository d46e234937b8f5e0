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


class NotAnswered(LlmgwError):
    """What the control plane said instead of an answer."""


def ask(context: Context, what: str, **arguments: Any) -> Any:
    """The answer to one question; raises `NotReached`, `LinkClosed` or `NotAnswered`."""
    return ask_all(context, [(what, arguments)])[0]


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
        raise NotAnswered(f"the control plane has not answered within {ANSWER_S:g} s") from None
    if isinstance(message, Refused):
        raise NotAnswered(message.reason)
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
    from llmgw_core.net.call import NotReached
    from llmgw_core.net.link import LinkClosed

    if isinstance(error, NotReached | LinkClosed | NotAnswered):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        return _first_of(error)
    raise error


def _first_of(errors: BaseExceptionGroup[BaseException]) -> str:
    """What is said of a link that several tasks saw ending; raises what is no such thing."""
    expected, others = errors.split(LlmgwError)
    if others is not None or expected is None:
        raise errors
    inner: BaseException = expected
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return str(inner)

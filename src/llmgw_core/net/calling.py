"""How an agent or a gateway keeps its link to the control plane: called for ever, and given up when nothing is heard.

Rules: calls that fail come less and less often, with full jitter; nothing delays a heartbeat, which has a task of its
own; a link on which nothing is heard for three beats is given up, however alive TCP thinks it is; the certificate is
read anew for each link.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import trio

from llmgw_core.errors import LlmgwError
from llmgw_core.net.call import Server, call
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.plan.backoff import delay_s, failures_after
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, Heartbeat, Hello, Message, Refused, Unknown

DEAF_BEATS = 3
WELCOME_S = 20.0
"""How long the control plane may take from our Hello to its answer: it stores before it answers."""


async def call_for_ever(
    server: Server,
    credentials: CredentialFiles,
    talk: Callable[[Link], Awaitable[None]],
    log: logging.Logger,
    limit_bytes: int = MESSAGE_LIMIT_BYTES,
) -> None:
    """Connect, `talk` until the link ends, and begin again, until cancelled. `limit_bytes`: of one message heard."""
    failures = 0
    while True:
        begun = trio.current_time()
        connected = False

        async def talk_once(link: Link) -> None:
            nonlocal connected, begun
            connected, begun = True, trio.current_time()
            await talk(link)

        reason = await _talk_once(server, credentials, talk_once, limit_bytes)
        failures = failures_after(failures, trio.current_time() - begun if connected else 0.0)
        wait = delay_s(failures, random.random())  # noqa: S311 - it spreads calls, it hides nothing
        log.warning("not connected", extra={"reason": reason, "again_in_s": f"{wait:.1f}"})
        await trio.sleep(wait)


async def _talk_once(
    server: Server, credentials: CredentialFiles, talk: Callable[[Link], Awaitable[None]], limit_bytes: int
) -> str:
    """Why it ended."""
    reason = "the link ended"
    try:
        now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by this machine's clock
        async with call(server, credentials, now, limit_bytes) as link:
            await talk(link)
    except* (LlmgwError, OSError) as errors:
        reason = _first(errors)
    return reason


async def greet(link: Link, hello: Hello) -> Message | Unknown:
    """The answer to our Hello; raises `LinkClosed` where there is none, or it is a refusal."""
    await link.say(hello)
    with trio.move_on_after(WELCOME_S) as patience:
        welcome = await link.hear()
    if patience.cancelled_caught:
        raise LinkClosed(f"no answer to our Hello within {WELCOME_S:g} s")
    if isinstance(welcome, Refused):
        raise LinkClosed(welcome.reason)
    return welcome


async def hear(link: Link, heartbeat_s: float) -> Message | Unknown:
    """The next message; raises `LinkClosed` where none comes, or it is a refusal."""
    with trio.move_on_after(DEAF_BEATS * heartbeat_s) as patience:
        message = await link.hear()
    if patience.cancelled_caught:
        raise LinkClosed(f"nothing was heard for {DEAF_BEATS * heartbeat_s:g} s")
    if isinstance(message, Refused):
        raise LinkClosed(message.reason)
    return message


async def beat(link: Link, heartbeat_s: float) -> None:
    number = 0
    while True:
        await trio.sleep(heartbeat_s)
        number += 1
        await link.say(Heartbeat(number))


def _first(errors: BaseExceptionGroup[BaseException]) -> str:
    inner = errors.exceptions[0]
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return str(inner) or type(inner).__name__

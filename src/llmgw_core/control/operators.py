"""An operator's link: questions and orders, answered one by one.

Rules: an order is stored before it is answered; what cannot be done is one line, and the link goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from contextlib import nullcontext
from typing import Any

import trio

from llmgw_core.control.arguments import BadQuestion
from llmgw_core.control.fleet import Connection
from llmgw_core.control.operation import OPERATIONS
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.visit import Visit
from llmgw_core.errors import LlmgwError
from llmgw_core.net.link import LinkClosed, TooLong
from llmgw_core.plan.admission import Caller
from llmgw_core.store.change import CertificateSeen
from llmgw_core.wire.facts import clipped
from llmgw_core.wire.message import PROTOCOL, Answer, Ask, Failed, Unknown, Welcome
from llmgw_core.wire.session import why_not_spoken

FAILED_CHARACTERS = 2000
NOTICE_S = 0.5
"""How often it is looked whether who asked is still there."""
WAITING = ("engine-check", "log", "plan", "plan-drain", "explain")
"""What only waits for somebody else, and ends with the link of who asked; all else is carried through."""
CHANGING = ("apply", "scale", "drain", "undrain", "rollout", "rollback", "remove-node")
"""One at a time: they look at what is desired, store, and then change it in memory."""
IDLE_S = 600.0
"""An operator's link that asks nothing is closed after this."""


async def serve_operator(plane: Plane, visit: Visit) -> None:
    """Until the link ends."""
    reason = why_not_spoken(visit.hello)
    if reason:
        raise BadQuestion(reason)
    seen = CertificateSeen(visit.identity.name, visit.identity.role.value, visit.serial, visit.until, plane.now())
    with trio.CancelScope() as scope:
        caller = Caller(visit.identity.name, visit.key, visit.address)
        number = next(plane.fleet.numbers)
        connection = Connection(number, visit.link, visit.identity, visit.serial, caller, scope)
        connection.until = visit.until
        plane.fleet.operators.add(connection)
        try:
            # It is among the operators before anything is waited for: a revocation in this moment closes it too.
            await _remember(plane, seen)
            await connection.say(Welcome(PROTOCOL, plane.fleet.heartbeat_s))
            await _converse(plane, connection)
        except LinkClosed as error:
            level = logging.DEBUG if connection.link.closed else logging.INFO  # each command closes its link at its end
            log.log(level, "operator has gone", extra={"operator": visit.identity.name, "reason": str(error)})
            await connection.outlast_end()  # else: a command line that has its answer
        finally:
            plane.fleet.operators.discard(connection)


async def _remember(plane: Plane, seen: CertificateSeen) -> None:
    """A store that is full keeps no operator out: who else should make room, or revoke?"""
    try:
        await plane.writer.write(seen)
    except LlmgwError as error:
        log.error("not stored", extra={"operator": seen.name, "reason": str(error)})


async def _converse(plane: Plane, connection: Connection) -> None:
    while True:
        with trio.move_on_after(IDLE_S) as idle:
            message = await connection.link.hear()
        if idle.cancelled_caught:
            await connection.end(f"nothing was asked for {IDLE_S:g} s")
            return
        if isinstance(message, Ask):
            await _say(connection, await _answer(plane, connection, message))
        elif not isinstance(message, Unknown):
            raise BadQuestion(f"{type(message).__name__} from an operator")


async def _say(connection: Connection, answer: Answer | Failed) -> None:
    try:
        await connection.say(answer)
    except TooLong as error:
        await connection.say(Failed(answer.id, f"{error}; ask for less"))


async def _answer(plane: Plane, connection: Connection, ask: Ask) -> Answer | Failed:
    operation = OPERATIONS.get(ask.what)
    if operation is None:
        what = repr(clipped(ask.what, 80))
        return Failed(ask.id, f"this control plane knows no operation {what}; is it older than this command?")
    log.info("asked", extra={"operator": connection.identity.name, "what": ask.what})
    try:
        answer = operation(plane, connection.identity.name, ask.arguments)
        carried = _while_asked(connection, answer) if ask.what in WAITING else _carry_through(plane, ask.what, answer)
        return Answer(ask.id, await carried)
    except LlmgwError as error:
        return Failed(ask.id, clipped(str(error), FAILED_CHARACTERS))


async def _carry_through(plane: Plane, what: str, operation: Awaitable[Any]) -> Any:
    """The operation's answer. A link that is closed in the midst of it leaves nothing stored that memory has not."""
    with trio.CancelScope(shield=True):
        async with plane.changing if what in CHANGING else nullcontext():
            return await operation


async def _while_asked(connection: Connection, operation: Awaitable[Any]) -> Any:
    """The operation's answer; it ends with the link of who asked. Raises `LinkClosed` then."""
    failed: list[LlmgwError] = [LinkClosed("who asked has gone")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_notice_end, connection, nursery.cancel_scope)
        try:
            return await operation
        except LlmgwError as error:
            failed.append(error)
        finally:
            nursery.cancel_scope.cancel()
    raise failed[-1]


async def _notice_end(connection: Connection, scope: trio.CancelScope) -> None:
    while connection.link.closed is None:  # noqa: ASYNC110 - a link has no event for it
        await trio.sleep(NOTICE_S)
    scope.cancel()

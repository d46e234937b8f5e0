"""An operator's link: questions and orders, answered one by one.

Rules: an order is stored before it is answered; what cannot be done is one line, and the link goes on.
"""

from __future__ import annotations

import trio

from llmgw_core.control.fleet import Connection
from llmgw_core.control.operation import OPERATIONS, BadQuestion
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.visit import Visit
from llmgw_core.errors import LlmgwError
from llmgw_core.net.link import LinkClosed, TooLong
from llmgw_core.plan.admission import Caller
from llmgw_core.store.change import CertificateSeen
from llmgw_core.wire.message import PROTOCOL, Answer, Ask, Failed, Unknown, Welcome
from llmgw_core.wire.session import why_not_spoken

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
        plane.fleet.operators.add(connection)
        try:
            # It is among the operators before anything is waited for: a revocation in this moment closes it too.
            await plane.writer.write(seen)
            await visit.link.say(Welcome(PROTOCOL, plane.fleet.heartbeat_s))
            await _converse(plane, connection)
        except LinkClosed:
            await connection.outlast_end()  # else: a command line that has its answer
        finally:
            plane.fleet.operators.discard(connection)


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
        await connection.link.say(answer)
    except TooLong as error:
        await connection.link.say(Failed(answer.id, f"{error}; ask for less"))


async def _answer(plane: Plane, connection: Connection, ask: Ask) -> Answer | Failed:
    operation = OPERATIONS.get(ask.what)
    if operation is None:
        return Failed(ask.id, f"this control plane knows no operation {ask.what!r}; is it older than this command?")
    log.info("asked", extra={"operator": connection.identity.name, "what": ask.what})
    try:
        return Answer(ask.id, await operation(plane, connection.identity.name, ask.arguments))
    except LlmgwError as error:
        return Failed(ask.id, str(error))

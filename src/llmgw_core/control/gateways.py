"""A gateway's link, from its Hello to its end.

Rules: the whole table at once, and again whenever it changed; a gateway that is slow keeps nobody waiting and hears the
latest; what it may still send is remembered after its link has ended, until nobody has to wait for it any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import define

from llmgw_core.control.arguments import BadQuestion
from llmgw_core.control.fleet import Connection
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.renewal import renew_certificate
from llmgw_core.control.routing import Subscription
from llmgw_core.control.visit import Visit
from llmgw_core.errors import LlmgwError
from llmgw_core.net.link import LinkClosed, TooLong
from llmgw_core.plan.admission import Caller
from llmgw_core.store.change import CertificateSeen, Change, GatewayConnected, GatewayForgotten
from llmgw_core.wire.message import (
    PROTOCOL,
    Heartbeat,
    HeartbeatSeen,
    Leaving,
    Message,
    RenewCertificate,
    Routes,
    RoutesTaken,
    Unknown,
    Welcome,
)
from llmgw_core.wire.session import why_not_spoken


async def serve_gateway(plane: Plane, visit: Visit) -> None:
    """Until the link ends, for whatever reason."""
    reason = why_not_spoken(visit.hello)
    if reason:
        raise BadQuestion(reason)
    with trio.CancelScope() as scope:
        connection = _connection(plane, visit, scope)
        # Among the gateways before anything is waited for: a revocation in this moment closes it too.
        plane.fleet.gateways.add(connection)
        try:
            await _replace_older(plane, connection)
            await _converse(plane, visit, connection)
        except LinkClosed as error:
            await connection.outlast_end()
            connection.why_closed = connection.why_closed or str(error)
        finally:
            plane.fleet.gateways.discard(connection)
            with trio.CancelScope(shield=True):
                why = connection.why_closed or "the connection is gone"
                await _store(plane, plane.event("gateway disconnected", "", f"{_called(connection)}: {why}"))


async def _converse(plane: Plane, visit: Visit, connection: Connection) -> None:
    subscription = plane.routes.subscribe(visit.identity.name, visit.hello.instance, visit.address, visit.until)
    conversation = _Conversation(plane, connection, subscription, plane.now())
    try:
        await _remember(plane, visit)
        await connection.say(Welcome(PROTOCOL, plane.fleet.heartbeat_s))
        await conversation.last()
    finally:
        subscription.lose(conversation.last_heard)


def _connection(plane: Plane, visit: Visit, scope: trio.CancelScope) -> Connection:
    return Connection(
        number=next(plane.fleet.numbers),
        link=visit.link,
        identity=visit.identity,
        serial=visit.serial,
        caller=Caller(visit.identity.name, visit.key, visit.address),
        scope=scope,
        since=visit.since,
        until=visit.until,
        instance=visit.hello.instance,
    )


async def _replace_older(plane: Plane, connection: Connection) -> None:
    """The same instance is the same process, which has called again: its older link is dead and does not know it."""
    for older in tuple(plane.fleet.gateways):
        same = (older.identity, older.instance) == (connection.identity, connection.instance)
        if same and older is not connection:
            await older.end(
                f"gateway {_called(older)}: replaced by a newer connection from {connection.caller.address}"
            )


def _called(connection: Connection) -> str:
    instance = connection.instance[:8]
    return f"{connection.identity.name}/{instance}" if instance else connection.identity.name


async def _remember(plane: Plane, visit: Visit) -> None:
    """A store that is full keeps no gateway out: it has requests to serve."""
    name, role = visit.identity.name, visit.identity.role.value
    seen = CertificateSeen(name, role, visit.serial, visit.until, plane.now())
    connected = GatewayConnected(name, visit.hello.instance, plane.now())
    await _store(plane, seen, connected, plane.event("gateway connected", "", f"{name} from {visit.address}"))


async def _store(plane: Plane, *changes: Change) -> None:
    try:
        await plane.writer.write(*changes)
    except LlmgwError as error:
        log.error("not stored", extra={"reason": str(error)})


@define(eq=False)
class _Conversation:
    plane: Plane
    connection: Connection
    subscription: Subscription
    last_heard: float
    _why: LlmgwError | None = None

    async def last(self) -> None:
        """Until the link ends; raises what ended it."""
        self.subscription.silent_since = self._silent_since
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_failed, self._tell, nursery.cancel_scope)
            nursery.start_soon(self._until_failed, self._hear, nursery.cancel_scope)
        if self._why is not None:
            raise self._why

    async def _until_failed(self, work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await work()
        except LlmgwError as error:
            self._why = self._why or error
        scope.cancel()

    def _silent_since(self) -> float | None:
        silent = self.plane.fleet.silent(self.last_heard, self.plane.now())
        return self.last_heard if silent else None

    async def _tell(self) -> None:
        while True:
            published = await self.subscription.next_published()
            try:
                await self.connection.say_text(Routes.__name__, await published.text())
            except TooLong as error:
                told = f"{self.subscription.name} goes on by the last one: {error}"
                await _store(self.plane, self.plane.event("routes too large", "", told))

    async def _hear(self) -> None:
        while True:
            patience_s = max(0.0, self._patience_s())
            message = None
            with trio.move_on_after(patience_s):
                message = await self.connection.link.hear()
            if message is not None:
                self.last_heard = self.plane.now()
                await self._answer(message)
            elif self._patience_s() <= 0:  # else it was us who slept
                lost_after_s = self.plane.fleet.pace.lost_after_s
                await self.connection.end(f"gateway {self.subscription.name}: nothing was heard for {lost_after_s:g} s")
                return

    def _patience_s(self) -> float:
        return self.plane.fleet.patience_s(self.last_heard, self.plane.now())

    async def _answer(self, message: Message | Unknown) -> None:
        match message:
            case Heartbeat(number=number):
                await self.connection.say(HeartbeatSeen(number))
            case RoutesTaken(version=version, lingering=lingering):
                self.subscription.taken(version, lingering)
            case Leaving():
                self.subscription.close()
                await _store(self.plane, GatewayForgotten(*self.subscription.who))
            case RenewCertificate(request_pem=request):
                await self.connection.say(await renew_certificate(self.plane, self.connection, request))
            case Unknown():
                pass
            case _:
                raise BadQuestion(f"{type(message).__name__} from a gateway")

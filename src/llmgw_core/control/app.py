"""Builds the control plane and runs it until it is asked to stop.

Rules: one process for each state directory; the store is opened before the port; a stop closes the links with a word,
writes what is queued, and only then lets the directory go.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import trio
from attrs import field, frozen

from llmgw_core.control.deployment import SOAK_S, Deployment
from llmgw_core.control.fleet import Fleet
from llmgw_core.control.keys import publish_keys
from llmgw_core.control.loop import plan_for_ever
from llmgw_core.control.own_certificate import OwnCertificate
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.routing import RoutesBook
from llmgw_core.control.tidy import calm_down, give_back_when_quiet
from llmgw_core.control.visitor import receive
from llmgw_core.control.watch import watch_certificates, watch_clock, watch_nodes
from llmgw_core.control.writer import open_writer
from llmgw_core.errors import LlmgwError
from llmgw_core.model.replica import Endpoint
from llmgw_core.net.call import CONTROL_PORT
from llmgw_core.net.door import Room
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.plan.liveness import Pace
from llmgw_core.process import allow_many_connections, sole_owner
from llmgw_core.store.database import Database
from llmgw_core.store.reading import read_gateways, read_keys, read_nodes, read_revocations

Embedded = Callable[[RoutesBook], Awaitable[None]]
STORE_FILE = "control.db"
BACKLOG = 4096
"""Connections that the kernel keeps for us while a fleet comes back all at once."""


@frozen
class ControlSettings:
    state: Path
    credentials: CredentialFiles
    host: str | None = None
    """The address to listen on; all of them by default."""
    port: int = CONTROL_PORT
    authority: Path | None = None
    pace: Pace = field(factory=Pace)
    soak_s: float = SOAK_S


async def run_control(
    settings: ControlSettings,
    embedded: Embedded | None = None,
    task_status: trio.TaskStatus[Sequence[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; `task_status` gets the listeners when they are open.

    `embedded`: a gateway in this process; it subscribes to the routes that it is given, and lives as long.
    """
    own = OwnCertificate(settings.credentials)
    with sole_owner(settings.state, "control plane"):
        database, reading = (Database(settings.state / STORE_FILE) for _ in range(2))
        try:
            async with open_writer(database) as writer:
                deployment = Deployment(soak_s=settings.soak_s)
                plane = Plane(Fleet(_clock(), settings.pace), reading, writer, _clock, settings.authority, deployment)
                plane.fleet.load(read_nodes(reading), read_revocations(reading))
                for what in plane.deployment.load(reading):
                    log.error("stored and unreadable", extra={"reason": what})
                plane.routes.load(read_gateways(reading), plane.fleet.started)
                plane.keys.update({each.id: each for each in read_keys(reading)})
                publish_keys(plane)
                await _serve(plane, settings, own, embedded, task_status)
        finally:
            reading.close()
            database.close()


def _clock() -> float:
    return time.time()  # noqa: TID251 - the one place where the control plane looks at the clock


async def _serve(
    plane: Plane,
    settings: ControlSettings,
    own: OwnCertificate,
    embedded: Embedded | None,
    task_status: trio.TaskStatus[Sequence[trio.SocketListener]],
) -> None:
    try:
        listeners = await trio.open_tcp_listeners(settings.port, host=settings.host, backlog=BACKLOG)
    except OSError as error:
        where = f"{settings.host or '*'}:{settings.port}"
        raise LlmgwError(f"cannot listen on {where}: {error.strerror or error}") from error
    room = Room()
    allow_many_connections()
    calm_down()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, plane, nursery.cancel_scope)
        nursery.start_soon(give_back_when_quiet, plane.fleet)
        nursery.start_soon(watch_clock, plane)
        nursery.start_soon(watch_nodes, plane)
        nursery.start_soon(watch_certificates, plane)
        nursery.start_soon(own.watch, plane)
        nursery.start_soon(plan_for_ever, plane)
        if embedded is not None:
            nursery.start_soon(embedded, plane.routes)
        for listener in listeners:
            log.info("listening", extra={"address": _tell_address(listener)})
        task_status.started(listeners)
        await trio.serve_listeners(partial(receive, plane, own, room), listeners)


def _tell_address(listener: trio.SocketListener) -> str:
    host, port, *_ = listener.socket.getsockname()
    return str(Endpoint(host, port))


async def _stop_on_signal(plane: Plane, scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("stopping", extra={"signal": signal.Signals(number).name})
            break
    async with trio.open_nursery() as nursery:
        for connection in plane.fleet.connections():
            nursery.start_soon(connection.end, "the control plane is stopping")
    scope.cancel()

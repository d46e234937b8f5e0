"""Builds a gateway and runs it until it is asked to stop: in one process, or in several for one address."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.board import Board
from llmgw_core.gateway.client import Client
from llmgw_core.gateway.following import Following
from llmgw_core.gateway.listener import MetricsClient, NewClient, TlsFiles, open_listeners, tell_address
from llmgw_core.gateway.poller import LINGER_S, Poller
from llmgw_core.gateway.route_file import (
    ROUTE_FILE,
    BadRouteFile,
    Routed,
    parse_routes,
    read_routes,
    render_routes,
)
from llmgw_core.gateway.routing import Routing
from llmgw_core.gateway.serving import StopTimes, serve
from llmgw_core.gateway.settings import GATEWAY_PORT, DataSettings
from llmgw_core.gateway.supervisor import STOPS, Child, Supervisor
from llmgw_core.gateway.worker import Worker
from llmgw_core.model.identity import Role
from llmgw_core.net.call import Server
from llmgw_core.net.racing import first
from llmgw_core.net.renewal import finish_replacing
from llmgw_core.net.tls import CredentialFiles, client_context, require_own
from llmgw_core.process import allow_many_connections, sole_owner

_POKES = 4096
_log = logging.getLogger("llmgw.gateway")


Address = tuple[str | None, int]
"""Where to listen; None for all addresses."""


@frozen(kw_only=True)
class GatewaySettings:
    server: Server
    credentials: CredentialFiles
    state: Path
    data: DataSettings
    listen: Address = (None, GATEWAY_PORT)
    workers: int = 1
    tls: Address | None = None
    tls_files: tuple[Path, Path] | None = None
    """Certificate and key."""
    metrics: Address | None = None
    access_log: Path | None = None
    logs_access: bool = False
    """Where there is no file, to standard output."""
    stop: StopTimes


Doors = Sequence[tuple[socket.socket, NewClient]]


def run_gateway(settings: GatewaySettings) -> None:
    """Until a signal to stop; raises where the settings cannot be followed."""
    with sole_owner(settings.state, "gateway"):
        finish_replacing(settings.credentials)
        client_context(settings.credentials)  # what is wrong with a file is said at the start
        name = require_own(settings.credentials, Role.GATEWAY)
        allow_many_connections()
        _open_log(settings)
        doors = _open_doors(settings)
        if settings.workers == 1:
            trio.run(_run_alone, settings, name, doors[0])
        else:
            _run_several(settings, name, doors)


def _open_doors(settings: GatewaySettings) -> list[Doors]:
    """For each worker."""
    many = settings.workers
    doors: list[list[tuple[socket.socket, NewClient]]] = [[] for _ in range(many)]

    def open_at(place: Address, new_client: NewClient, processes: int, whom: str) -> None:
        for worker, sockets in enumerate(open_listeners(*place, processes)):
            doors[worker] += [(each, new_client) for each in sockets]
            for each in sockets if worker == 0 else ():
                _log.info("listening", extra={"address": tell_address(each), "for": whom})

    open_at(settings.listen, Client, many, "users")
    if settings.tls is not None and settings.tls_files is not None:
        open_at(settings.tls, TlsFiles(*settings.tls_files).new_client, many, "users with TLS")
    if settings.metrics is not None:
        open_at(settings.metrics, MetricsClient, 1, "metrics")
    if not settings.data.authenticates:
        _log.warning("everybody who reaches it is let in", extra={"reason": "--no-auth"})
    return list(doors)


async def _run_alone(settings: GatewaySettings, name: str, doors: Doors) -> None:
    board, poller, log = Board(), Poller(linger_s=LINGER_S), _open_log(settings)
    worker = Worker(settings.data, poller, board, 0, log)
    routing = Routing(board, lambda routed: worker.take(routed.table, routed.places), settings.state)
    routing.load()
    following = Following(name, settings.server, settings.credentials, routing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.keep)
        with _hearing_stops() as stops:
            await serve(
                worker, poller, doors, log, partial(_wait_to_stop, stops), settings.stop, partial(_hurry, stops)
            )
            await following.leave()
        nursery.cancel_scope.cancel()
    _log.info("stopped")


def _run_several(settings: GatewaySettings, name: str, doors: Sequence[Doors]) -> None:
    def link(child: Child) -> None:
        trio.run(_run_link, settings, name, child)

    def work(child: Child, number: int) -> None:
        trio.run(_run_worker, settings, doors[number], child, number)

    listeners = [[listener for listener, _ in each] for each in doors]
    Supervisor(settings.workers, link, work, listeners, _last_routes(settings.state)).run()
    _log.info("stopped")


def _last_routes(state: Path) -> bytes:
    """So that workers have them before they take a connection; what is wrong with the file, the link says."""
    with suppress(BadRouteFile):
        routed = read_routes(state / ROUTE_FILE)
        return render_routes(routed) if routed is not None else b""
    return b""


async def _run_link(settings: GatewaySettings, name: str, child: Child) -> None:
    def publish(routed: Routed) -> None:
        child.shelf.put(render_routes(routed))
        child.poke()

    routing = Routing(child.board, publish, settings.state)
    routing.load(child.shelf.get())
    following = Following(name, settings.server, settings.credentials, routing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.keep)
        with _hearing_stops() as stops:
            await _wait_for_end(child, stops)
            await following.leave()
        nursery.cancel_scope.cancel()


async def _run_worker(settings: GatewaySettings, doors: Doors, child: Child, number: int) -> None:
    poller, log = Poller(linger_s=LINGER_S), _open_log(settings)
    worker = Worker(settings.data, poller, child.board, number, log)
    await _read_shelf(worker, child)  # one that is started again has routes before it takes connections
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_when_poked, worker, child)
        with _hearing_stops() as stops:
            end, hurry = partial(_wait_for_end, child, stops), partial(_hurry, stops)
            await serve(worker, poller, doors, log, end, settings.stop, hurry)
        nursery.cancel_scope.cancel()


async def _read_when_poked(worker: Worker, child: Child) -> None:
    if child.poked is None:
        return
    while True:
        await trio.lowlevel.wait_readable(child.poked)
        with suppress(BlockingIOError):
            os.read(child.poked, _POKES)
        await _read_shelf(worker, child)


async def _read_shelf(worker: Worker, child: Child) -> None:
    text = child.shelf.get()
    if text:
        # In a thread: a large one (8,000 keys: 50 ms) would keep every stream waiting.
        routed = await trio.to_thread.run_sync(parse_routes, text)
        worker.take(routed.table, routed.places)


@contextmanager
def _hearing_stops() -> Iterator[AsyncIterator[int]]:
    """The signals to stop, until the end: between the first and a second one, too, none has its default effect."""
    with trio.open_signal_receiver(*STOPS) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        yield signals


async def _next(stops: AsyncIterator[int]) -> None:
    await anext(stops)


async def _hurry(stops: AsyncIterator[int]) -> None:
    """A second signal; but a terminal that goes sends its own twice, by the shell and by the kernel."""
    async for number in stops:
        if number != signal.SIGHUP:
            return


async def _wait_to_stop(stops: AsyncIterator[int]) -> None:
    await _next(stops)
    _log.info("stopping")


async def _wait_for_end(child: Child, stops: AsyncIterator[int]) -> None:
    """Until a signal comes, or the supervisor is no more."""
    await first(partial(_next, stops), partial(trio.lowlevel.wait_readable, child.supervised))


def _open_log(settings: GatewaySettings) -> AccessLog | None:
    if settings.access_log is None and not settings.logs_access:
        return None
    try:
        return AccessLog(settings.access_log)
    except OSError as error:
        raise LlmgwError(f"cannot write the access log {settings.access_log}: {error.strerror}") from error

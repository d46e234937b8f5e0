"""Takes users' connections, plain or with TLS."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.answer import Refusal, render_answer
from llmgw_core.gateway.client import Client
from llmgw_core.gateway.flow import PIECE_BYTES, notice_loss
from llmgw_core.gateway.poller import READ
from llmgw_core.gateway.worker import Worker
from llmgw_core.model.replica import Endpoint

BACKLOG = 4096
UNSENT = getattr(socket, "TCP_NOTSENT_LOWAT", None)
UNSENT_BYTES = 128 * 1024
"""What the kernel keeps for a client besides what is under way. Else it keeps megabytes for one that reads slowly, and
that a third of them was read is the first that one hears of it."""
_AT_ONCE = 64
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger("llmgw.gateway")


class TlsClient(Client):
    """A user's connection with TLS; the handshake is the first of its reading."""

    __slots__ = ("_encrypted",)

    def __init__(self, worker: Worker, connection: ssl.SSLSocket, address: str) -> None:
        super().__init__(worker, connection, address)
        self._encrypted = connection
        self._receive = self._decrypt
        self._send = self._encrypt

    def _decrypt(self, most: int) -> bytes:
        try:
            return self._encrypted.recv(most)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                self._answer_in_clear()
            raise

    def _answer_in_clear(self) -> None:
        """Who speaks plain HTTP here hears so, as of other servers, and no reset."""
        refusal = Refusal(400, "TLS is spoken at this port: use https://", "malformed_request")
        with suppress(OSError):  # below TLS
            socket.socket.recv(self._encrypted, PIECE_BYTES)
            socket.socket.send(self._encrypted, render_answer(400, refusal.body, b"", close=True))

    def _encrypt(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._encrypted.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error


class MetricsClient(Client):
    """A connection on the port of the metrics, which asks for no key and has nothing else."""

    __slots__ = ()

    def __init__(self, worker: Worker, connection: socket.socket, address: str) -> None:
        super().__init__(worker, connection, address, worker.judge_metrics)


class TlsFiles:
    """A certificate and its key; read anew once they have changed, so that a renewal needs no restart."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._look()
        self._context = self._read()

    def new_client(self, worker: Worker, connection: socket.socket, address: str) -> Client:
        encrypted = self._current().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return TlsClient(worker, encrypted, address)

    def _current(self) -> ssl.SSLContext:
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = self._read()
            except LlmgwError as error:
                _log.error("the old certificate is used on", extra={"reason": str(error)})
        return self._context

    def _look(self) -> list[int]:
        return [each.stat().st_mtime_ns if each.exists() else 0 for each in self._files]

    def _read(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        try:
            for file in self._files:
                file.read_bytes()  # OpenSSL does not say which of them it could not read
            context.load_cert_chain(certificate, key, password="")  # never ask a terminal for one
        except ssl.SSLError as error:
            why = "one of them is not in PEM form, or the key does not belong to the certificate"
            raise LlmgwError(f"cannot serve TLS with {certificate} and {key}: {why} ({error.reason})") from error
        except OSError as error:
            raise LlmgwError(f"cannot serve TLS: cannot read {error.filename}: {error.strerror}") from error
        return context


def open_listeners(host: str | None, port: int, processes: int) -> list[list[socket.socket]]:
    """For each process the sockets of an address, all of them where `host` is None; raises `LlmgwError`.

    Where there are several processes, the kernel divides the connections among them.
    """
    where = f"{host or '*'}:{port}"
    try:
        addresses = _resolve(host, port)
        if processes > 1:
            # With SO_REUSEPORT a second gateway could silently take its share; without, it is told.
            for each in _bind(addresses, shared=False):
                each.close()
        opened = [_bind(addresses, shared=processes > 1)]
        taken = [(family, each.getsockname()) for (family, _), each in zip(addresses, opened[0], strict=False)]
        opened += [_bind(taken, shared=True) for _ in range(processes - 1)]
    except OSError as error:
        raise LlmgwError(f"cannot listen on {where}: {error.strerror or error}") from error
    for listener in [each for sockets in opened for each in sockets]:
        listener.listen(BACKLOG)
        listener.setblocking(False)
    return opened


Address = tuple[Any, ...]


def _resolve(host: str | None, port: int) -> list[tuple[int, Address]]:
    flags = socket.AI_PASSIVE | socket.AI_ADDRCONFIG if host is None else 0
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return sorted({(family, address) for family, _, _, _, address in found}, key=str)


def _bind(addresses: Sequence[tuple[int, Address]], *, shared: bool) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for family, address in addresses:
            listener = socket.socket(family, socket.SOCK_STREAM)
            opened.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Where any port does, all families get the same.
            port = address[1] or (opened[0].getsockname()[1] if len(opened) > 1 else 0)
            listener.bind((address[0], port, *address[2:]))
    except OSError:
        for each in opened:
            each.close()
        raise
    return opened


def tell_address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return str(Endpoint(host, port))


NewClient = Callable[[Worker, socket.socket, str], Client]


class Listener:
    """Takes connections, as many as there is room for."""

    def __init__(self, worker: Worker, listener: socket.socket, new_client: NewClient = Client) -> None:
        self._worker = worker
        self._listener = listener
        self._new_client = new_client
        worker.poller.watch(listener, READ, self._accept)

    @property
    def is_for_users(self) -> bool:
        return self._new_client is not MetricsClient

    def _accept(self, _: int) -> None:
        self._take(_AT_ONCE)

    def _take(self, most: int) -> None:
        for _ in range(most):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _FULL:
                    # The kernel keeps those who wait; the next one that leaves makes room.
                    _log.error("no room for connections", extra={"reason": error.strerror})
                    self._worker.pause(self._listener)
                return
            self._begin(connection, str(address[0]))

    def _begin(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # One that takes too little is the worker's to notice.
        notice_loss(connection, self._worker.settings.silent_s, unread=False)
        if UNSENT is not None:
            connection.setsockopt(socket.IPPROTO_TCP, UNSENT, UNSENT_BYTES)
        try:
            self._worker.flows.add(self._new_client(self._worker, connection, address))
        except OSError:
            connection.close()  # it has gone already

    def close(self) -> None:
        """Take what the kernel has taken, and no more; not within a round.

        What comes between the last look and the end is reset by the kernel: some microseconds.
        """
        self._worker.poller.leave(self._listener)
        self._take(BACKLOG)
        self._listener.close()

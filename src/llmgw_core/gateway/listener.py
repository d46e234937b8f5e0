"""Takes users' connections, plain or with TLS."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Callable

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.client import Client
from llmgw_core.gateway.poller import READ
from llmgw_core.gateway.worker import Worker

BACKLOG = 4096
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

    def _encrypt(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._encrypted.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error


def open_listener(host: str, port: int, *, shared: bool) -> socket.socket:
    """`shared`: several processes listen there, and the kernel divides the connections among them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise LlmgwError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


class Listener:
    """`context` gives the TLS context for the next connection; None: plain."""

    def __init__(
        self, worker: Worker, listener: socket.socket, context: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self._worker = worker
        self._listener = listener
        self._context = context
        worker.poller.watch(listener, READ, self._accept)

    def _accept(self, _: int) -> None:
        for _each in range(_AT_ONCE):
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
        if self._context is None:
            client = Client(self._worker, connection, address)
        else:
            encrypted = self._context().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            client = TlsClient(self._worker, encrypted, address)
        self._worker.flows.add(client)

    def close(self) -> None:
        self._worker.poller.close(self._listener)

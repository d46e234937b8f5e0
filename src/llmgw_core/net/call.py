"""From an address to a link: what an agent and an operator's command do to reach the control plane.

Rules: the control plane proves its name or address by its certificate, always; whatever goes wrong is one line that
says what, with both sides' words where the other side gave any.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

import trio
from attrs import frozen
from cryptography import x509

from llmgw_core.errors import LlmgwError
from llmgw_core.net.link import Link, LinkClosed, open_link
from llmgw_core.net.tls import CredentialFiles, Peek, client_context, explain_tls_error
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

CONNECT_S = 10.0
PEEK_S = 5.0
CONTROL_PORT = 7443

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_LONGEST_HOST = 253


class NotReached(LlmgwError):
    """There is no link to the control plane; the text says why."""


@frozen
class Server:
    """Where the control plane is: `https://HOST:7443`."""

    host: str
    port: int = CONTROL_PORT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


def parse_server(text: str) -> Server:
    """From `https://HOST[:PORT]`; raises where it is something else."""
    try:
        parts = urlsplit(text)
        port = CONTROL_PORT if parts.port is None else parts.port
    except ValueError as error:
        raise LlmgwError(f"server {text!r}: {error}; write https://HOST:{CONTROL_PORT}") from error
    more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
    if parts.scheme != "https" or not parts.hostname or not port or more:
        raise LlmgwError(f"server {text!r} is no address of a control plane; write https://HOST:{CONTROL_PORT}")
    if not _is_host(parts.hostname):
        rule = "a host is an address, or labels of at most 63 of a-z, 0-9, - and _ between dots"
        raise LlmgwError(f"server {text!r}: {rule}; write https://HOST:{CONTROL_PORT}")
    return Server(parts.hostname, port)


def _is_host(host: str) -> bool:
    """Whether it is an address, or DNS can be asked for it: for other names `getaddrinfo` raises no OSError."""
    with suppress(ValueError):
        return bool(str(ip_address(host)))
    return len(host) <= _LONGEST_HOST and all(map(_LABEL.fullmatch, host.removesuffix(".").split(".")))


class _Witness(trio.abc.Stream):
    """A stream that remembers how it broke: the WebSocket above it only says that it did."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self._inner = inner
        self.error: BaseException | None = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            return await self._inner.receive_some(max_bytes)
        except trio.BrokenResourceError as error:
            self.error = error
            raise

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._inner.send_all(data)
        except trio.BrokenResourceError as error:
            self.error = self.error or error
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def call(
    server: Server, files: CredentialFiles, now: datetime, limit_bytes: int = MESSAGE_LIMIT_BYTES
) -> AsyncIterator[Link]:
    """A link to the control plane; raises `NotReached`. Errors inside the block are the block's own.

    `limit_bytes`: of one message that is heard; a gateway's is `ROUTES_LIMIT_BYTES`.
    """
    witness = _Witness(await _connect(server, files, now))
    opened = False
    try:
        async with open_link(witness, server.host, limit_bytes) as link:
            opened = True
            yield link
    except LinkClosed as closed:
        broken = witness.error.__cause__ if witness.error is not None else None
        if opened and not isinstance(broken, ssl.SSLError):
            raise
        # With TLS 1.3 the server's refusal of a certificate arrives after the handshake, as an alert.
        said = explain_tls_error(broken) if broken is not None else str(closed)
        raise NotReached(f"{server} refused us: {said}") from closed
    finally:
        await trio.aclose_forcefully(witness)


async def _connect(server: Server, files: CredentialFiles, now: datetime) -> trio.SSLStream[trio.SocketStream]:
    context = client_context(files)
    try:
        with trio.fail_after(CONNECT_S):
            stream = await trio.open_tcp_stream(server.host, server.port)
            return await _encrypt(stream, context, server.host)
    except trio.TooSlowError:
        raise NotReached(f"{server} did not answer within {CONNECT_S:g} s") from None
    except (trio.BrokenResourceError, ssl.SSLError) as error:
        seen = await _peek(server)
        raise NotReached(f"{server}: {explain_tls_error(error, seen, now)}") from error
    except UnicodeError as error:
        raise NotReached(f"{server} has no name that DNS could know: {error}") from error
    except OSError as error:
        raise NotReached(f"cannot connect to {server}: {_said(error)}") from error


async def _encrypt(stream: trio.SocketStream, context: ssl.SSLContext, host: str) -> trio.SSLStream[trio.SocketStream]:
    encrypted = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await encrypted.do_handshake()
    except BaseException as error:
        if isinstance(error, trio.BrokenResourceError):
            # trio leaves OpenSSL's alert unsent, and the server would never hear why (SSLStream._retry, trio 0.35).
            with suppress(trio.BrokenResourceError):
                await stream.send_all(encrypted._outgoing.read())
        await trio.aclose_forcefully(stream)
        raise
    return encrypted


def _said(error: OSError) -> str:
    inner = error.__cause__ or error
    first = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
    if isinstance(first, OSError) and first.errno is not None and first.errno > 0:
        return os.strerror(first.errno)  # trio's own text says the address again
    return (first.strerror if isinstance(first, OSError) else "") or str(first) or type(first).__name__


async def _peek(server: Server) -> x509.Certificate | None:
    """The certificate of a server whose handshake failed, to say what is wrong with it."""
    peek = Peek()
    with suppress(OSError, ssl.SSLError, trio.BrokenResourceError), trio.move_on_after(PEEK_S):
        async with await trio.open_tcp_stream(server.host, server.port) as stream:
            await stream.send_all(peek.hello)
            async for received in stream:
                found = peek.feed(bytes(received))
                if found is not None:
                    return found
    return None

"""One HTTP GET of an engine on this machine, over trio's TCP; the answer bounded in time and size.

In: an endpoint, a path, a time limit.  Out: a `Reply`; never an exception for what an engine does.
"""

from __future__ import annotations

import socket

import h11
import trio

from llmgw_core.engine import Endpoint, Reply, ReplyKind, Secret

BODY_BYTES = 64 * 1024
METRICS_BYTES = 4 * 1024 * 1024


async def ask(
    endpoint: Endpoint, path: str, timeout_s: float, *, api_key: Secret | None = None, most: int = BODY_BYTES
) -> Reply:
    """What comes back; `most` bytes of the body."""
    with trio.move_on_after(timeout_s):
        try:
            return await _ask(endpoint, path, api_key, most)
        except ConnectionRefusedError:
            return Reply(ReplyKind.REFUSED)
        except (OSError, trio.BrokenResourceError, h11.ProtocolError):
            return Reply(ReplyKind.BROKEN)
    return Reply(ReplyKind.TIMED_OUT)


async def takes_connection(endpoint: Endpoint, timeout_s: float) -> bool:
    with trio.move_on_after(timeout_s):
        try:
            async with await _connect(endpoint):
                return True
        except OSError:
            return False
    return False


async def _connect(endpoint: Endpoint) -> trio.SocketStream:
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    connection = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        await connection.connect((endpoint.address, endpoint.port))
    except BaseException:
        connection.close()
        raise
    return trio.SocketStream(connection)


async def _ask(endpoint: Endpoint, path: str, api_key: Secret | None, most: int) -> Reply:
    async with await _connect(endpoint) as stream:
        talk = h11.Connection(h11.CLIENT)
        headers = [("Host", str(endpoint)), ("Connection", "close"), ("User-Agent", "llmgw-agent")]
        if api_key is not None:
            headers.append(("Authorization", f"Bearer {api_key.reveal()}"))
        await stream.send_all(talk.send(h11.Request(method="GET", target=path, headers=headers)) or b"")
        await stream.send_all(talk.send(h11.EndOfMessage()) or b"")
        return await _read(stream, talk, most)


async def _read(stream: trio.SocketStream, talk: h11.Connection, most: int) -> Reply:
    status, body = 0, b""
    while len(body) < most:
        event = talk.next_event()
        if event is h11.NEED_DATA:
            talk.receive_data(await stream.receive_some(65536))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            break
    kind = ReplyKind.ANSWERED if status else ReplyKind.BROKEN
    return Reply(kind, status, body[:most].decode("utf-8", "replace"))

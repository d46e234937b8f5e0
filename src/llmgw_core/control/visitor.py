"""A caller's way from the socket to the part of the control plane that its role leads to.

Whoever does not get there is one line in the log with address and reason, and hears the same reason.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime

import trio
from cryptography import x509

from llmgw_core.control.agents import serve_agent
from llmgw_core.control.operators import serve_operator
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.visit import HELLO_S, Visit
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Role
from llmgw_core.net.door import TurnedAway, shake_hands
from llmgw_core.net.link import Link, LinkClosed, accept_link
from llmgw_core.net.tls import peer_certificate
from llmgw_core.pki.certificate import key_identifier, serial_text
from llmgw_core.pki.identity import PeerRefused, verify_peer
from llmgw_core.wire.message import Hello
from llmgw_core.wire.session import OutOfTurn
from llmgw_core.wire.text import Garbage

_ROLES: Collection[Role] = (Role.NODE, Role.OPERATOR)


async def receive(
    plane: Plane, caller: trio.SocketStream, context: ssl.SSLContext, places: trio.CapacityLimiter
) -> None:
    """One connection, from accept to its end. Raises nothing but what is our own mistake."""
    address = _address(caller)
    try:
        stream = await shake_hands(caller, context, places)
        async with accept_link(stream) as link:
            await _meet(plane, link, peer_certificate(stream), address)
    except (TurnedAway, LinkClosed) as error:
        log.warning("refused", extra={"address": address, "reason": str(error)})
    finally:
        await trio.aclose_forcefully(caller)


def _address(caller: trio.SocketStream) -> str:
    with suppress(OSError):
        host, port, *_ = caller.socket.getpeername()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unknown address"


async def _meet(plane: Plane, link: Link, certificate: x509.Certificate, address: str) -> None:
    name = ""
    try:
        hello = await _hear_hello(link)
        name = hello.name
        now = datetime.fromtimestamp(plane.now(), UTC)
        revoked = plane.fleet.revoked
        identity = verify_peer(certificate, now, roles=_ROLES, revoked=revoked, claimed=hello.name)
        until = certificate.not_valid_after_utc.timestamp()
        key = key_identifier(certificate)
        visit = Visit(link, hello, identity, serial_text(certificate), key, until, address)
        await (serve_agent if identity.role is Role.NODE else serve_operator)(plane, visit)
    except (PeerRefused, Garbage, OutOfTurn) as error:
        await _turn_away(link, address, name, str(error))
    except LlmgwError as error:
        if isinstance(error, LinkClosed):
            raise
        await _turn_away(link, address, name, str(error))


async def _hear_hello(link: Link) -> Hello:
    try:
        with trio.fail_after(HELLO_S):
            message = await link.hear()
    except trio.TooSlowError:
        raise OutOfTurn(f"no Hello within {HELLO_S:g} s") from None
    if not isinstance(message, Hello):
        raise OutOfTurn(f"{type(message).__name__} in place of a Hello")
    return message


async def _turn_away(link: Link, address: str, name: str, reason: str) -> None:
    log.warning("refused", extra={"node": name, "address": address, "reason": reason})
    await link.refuse(reason)

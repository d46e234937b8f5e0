"""A caller's way from the socket to the part of the control plane that its role leads to.

Whoever does not get there is one line in the log with address and reason, and hears the same reason.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime

import trio
from cryptography import x509

from llmgw_core.control.agents import serve_agent
from llmgw_core.control.gateways import serve_gateway
from llmgw_core.control.operators import serve_operator
from llmgw_core.control.own_certificate import OwnCertificate
from llmgw_core.control.plane import Plane, log
from llmgw_core.control.visit import HELLO_CHARACTERS, HELLO_S, Visit
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Role
from llmgw_core.net.door import Room, TurnedAway, shake_hands
from llmgw_core.net.link import Link, LinkClosed, accept_link
from llmgw_core.net.tls import Encrypted, peer_certificate
from llmgw_core.pki.certificate import key_identifier, serial_text
from llmgw_core.pki.identity import NotAnIdentity, read_identity, verify_peer
from llmgw_core.wire.message import Hello
from llmgw_core.wire.session import OutOfTurn

_ROLES: Collection[Role] = (Role.NODE, Role.OPERATOR, Role.GATEWAY)


async def receive(plane: Plane, own: OwnCertificate, room: Room, caller: trio.SocketStream) -> None:
    """One connection, from accept to its end. Raises nothing."""
    plane.fleet.moved += 1
    keys = {"node": "", "address": _address(caller)}
    try:
        stream = await shake_hands(caller, own.context, room)
        keys["node"] = _name_in(peer_certificate(stream))
        async with accept_link(stream) as link:
            await _meet(plane, link, stream, keys)
    except (TurnedAway, LinkClosed) as error:
        log.warning("refused", extra={**keys, "reason": str(error)})
    except Exception:
        # Ours, and it must cost no other peer its link.
        log.exception("failed", extra=keys)
    finally:
        plane.fleet.moved += 1
        await trio.aclose_forcefully(caller)


def _address(caller: trio.SocketStream) -> str:
    with suppress(OSError):
        host, port, *_ = caller.socket.getpeername()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unknown address"


def _name_in(certificate: x509.Certificate) -> str:
    """For the log, before anybody is verified."""
    with suppress(LlmgwError):
        return read_identity(certificate).name
    return ""


async def _meet(plane: Plane, link: Link, stream: Encrypted, keys: dict[str, str]) -> None:
    try:
        hello = await _hear_hello(link)
        keys["node"] = hello.name
        # The certificate is not kept as long as the link: it has several kB.
        visit = _identify(plane, link, hello, peer_certificate(stream), keys["address"])
        match visit.identity.role:
            case Role.NODE:
                await serve_agent(plane, visit)
            case Role.GATEWAY:
                await serve_gateway(plane, visit)
            case _:
                await serve_operator(plane, visit)
    except LinkClosed:
        raise
    except LlmgwError as error:
        log.warning("refused", extra={**keys, "reason": str(error)})
        await link.refuse(str(error))


def _identify(plane: Plane, link: Link, hello: Hello, certificate: x509.Certificate, address: str) -> Visit:
    now = datetime.fromtimestamp(plane.now(), UTC)
    identity = verify_peer(certificate, now, roles=_ROLES, revoked=plane.fleet.revoked, claimed=hello.name)
    if plane.fleet.barred[identity] > 0:
        raise NotAnIdentity(f"{identity.role.value} {identity.name} refused: its certificates are being revoked")
    return Visit(
        link=link,
        hello=hello,
        identity=identity,
        serial=serial_text(certificate),
        key=key_identifier(certificate),
        since=certificate.not_valid_before_utc.timestamp(),
        until=certificate.not_valid_after_utc.timestamp(),
        address=address,
    )


async def _hear_hello(link: Link) -> Hello:
    try:
        with trio.fail_after(HELLO_S):
            message = await link.hear()
    except trio.TooSlowError:
        raise OutOfTurn(f"no Hello within {HELLO_S:g} s") from None
    if not isinstance(message, Hello):
        raise OutOfTurn(f"{type(message).__name__} in place of a Hello")
    for what in ("name", "version", "instance"):
        length = len(getattr(message, what))
        if length > HELLO_CHARACTERS:
            raise OutOfTurn(f"a Hello whose {what} has {length} characters, over {HELLO_CHARACTERS}")
    return message

"""Renews a node's certificate over its own link, where the authority's directory is on this machine.

Rules: nothing is signed before it is due, twice in `AGAIN_S`, or for anybody who is being revoked; a
certificate is in the store before it is given out, so that revoking the node revokes it too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import trio

from llmgw_core.control.fleet import Connection
from llmgw_core.control.plane import Plane, log
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity
from llmgw_core.pki.validity import describe_time, renewal_due
from llmgw_core.store.change import CertificateSeen
from llmgw_core.wire.message import CertificateRenewed

NO_AUTHORITY = "the authority is not on the control plane's machine; renew by onboarding again"
AGAIN_S = 600.0
"""How long after a renewal another one is signed: the first may not have arrived."""
CLOCKS_S = 300.0
"""By so much may the node's clock be ahead of ours."""


class NotRenewed(LlmgwError):
    """Why nothing is signed."""


async def renew_certificate(plane: Plane, connection: Connection, request_pem: str) -> CertificateRenewed:
    """The new certificate for who the link's own certificate names, whatever the request says; or why not."""
    if plane.authority is None:
        return CertificateRenewed(reason=NO_AUTHORITY)
    now, identity = plane.now(), connection.identity
    try:
        _require_due(plane, connection, now)
        plane.fleet.renewed[identity] = now
        pem, serial, until = await trio.to_thread.run_sync(_renew, plane.authority, identity, request_pem, now)
        _require_not_revoked(plane, connection)
        await plane.writer.write(CertificateSeen(identity.name, identity.role.value, serial, until, now))
        _require_not_revoked(plane, connection, serial)
    except LlmgwError as error:
        log.error("certificate not renewed", extra={"node": identity.name, "reason": str(error)})
        return CertificateRenewed(reason=str(error))
    log.info("certificate renewed", extra={"node": identity.name})
    return CertificateRenewed(pem)


def _require_due(plane: Plane, connection: Connection, now: float) -> None:
    _require_not_revoked(plane, connection)
    begin, end = (datetime.fromtimestamp(each, UTC) for each in (connection.since, connection.until))
    if not renewal_due(begin, end, datetime.fromtimestamp(now + CLOCKS_S, UTC)):
        raise NotRenewed(f"it is not due yet: the certificate is good until {describe_time(end)}")
    ago = now - plane.fleet.renewed.get(connection.identity, -AGAIN_S)
    if 0 <= ago < AGAIN_S:
        raise NotRenewed(f"one was signed {ago:.0f} s ago; another one is not before {AGAIN_S:g} s have passed")


def _require_not_revoked(plane: Plane, connection: Connection, *serials: str) -> None:
    fleet = plane.fleet
    if fleet.barred[connection.identity] > 0 or any(each in fleet.revoked for each in (connection.serial, *serials)):
        raise NotRenewed("its certificate is revoked")


def _renew(directory: Path, identity: Identity, request_pem: str, now: float) -> tuple[str, str, float]:
    """The certificate, its serial, and its end."""
    from llmgw_core.pki.authority import Authority
    from llmgw_core.pki.files import certificate_pem

    issued = Authority.open(directory).renew(identity, request_pem.encode(), datetime.fromtimestamp(now, UTC))
    end = issued.certificate.not_valid_after_utc.timestamp()
    return certificate_pem(issued.certificate).decode(), issued.record.serial, end

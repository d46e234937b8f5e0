"""Renews a node's certificate over its own link, where the authority's directory is on this machine.

Rules: a certificate is in the store before it is given out, so that revoking the node revokes it too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import trio

from llmgw_core.control.plane import Plane, log
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity
from llmgw_core.store.change import CertificateSeen
from llmgw_core.wire.message import CertificateRenewed

NO_AUTHORITY = "the authority is not on the control plane's machine; renew by onboarding again"


async def renew_certificate(plane: Plane, identity: Identity, request_pem: str) -> CertificateRenewed:
    """The new certificate for who the link's own certificate names, whatever the request says; or why not."""
    if plane.authority is None:
        return CertificateRenewed(reason=NO_AUTHORITY)
    now = plane.now()
    try:
        pem, serial, until = await trio.to_thread.run_sync(_renew, plane.authority, identity, request_pem, now)
        await plane.writer.write(CertificateSeen(identity.name, identity.role.value, serial, until, now))
    except LlmgwError as error:
        log.error("certificate not renewed", extra={"node": identity.name, "reason": str(error)})
        return CertificateRenewed(reason=str(error))
    log.info("certificate renewed", extra={"node": identity.name})
    return CertificateRenewed(pem)


def _renew(directory: Path, identity: Identity, request_pem: str, now: float) -> tuple[str, str, float]:
    """The certificate, its serial, and its end."""
    from llmgw_core.pki.authority import Authority
    from llmgw_core.pki.files import certificate_pem

    issued = Authority.open(directory).renew(identity, request_pem.encode(), datetime.fromtimestamp(now, UTC))
    end = issued.certificate.not_valid_after_utc.timestamp()
    return certificate_pem(issued.certificate).decode(), issued.record.serial, end

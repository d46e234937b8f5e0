"""Renews a node's certificate over its own link, where the authority's directory is on this machine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import trio

from llmgw_core.control.plane import log
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity
from llmgw_core.wire.message import CertificateRenewed

NO_AUTHORITY = "the authority is not on the control plane's machine; renew by onboarding again"


async def renew_certificate(
    directory: Path | None, identity: Identity, request_pem: str, now: datetime
) -> CertificateRenewed:
    """The new certificate for who the link's own certificate names, whatever the request says; or why not."""
    if directory is None:
        return CertificateRenewed(reason=NO_AUTHORITY)
    try:
        pem = await trio.to_thread.run_sync(_renew, directory, identity, request_pem, now)
    except LlmgwError as error:
        log.error("certificate not renewed", extra={"node": identity.name, "reason": str(error)})
        return CertificateRenewed(reason=str(error))
    log.info("certificate renewed", extra={"node": identity.name})
    return CertificateRenewed(pem)


def _renew(directory: Path, identity: Identity, request_pem: str, now: datetime) -> str:
    from llmgw_core.pki.authority import Authority
    from llmgw_core.pki.files import certificate_pem

    issued = Authority.open(directory).renew(identity, request_pem.encode(), now)
    return certificate_pem(issued.certificate).decode()

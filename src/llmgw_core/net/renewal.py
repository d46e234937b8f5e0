"""Renews an agent's or a gateway's certificate over the link, at two thirds of its life.

Rules: the new key is made here and never leaves; the pair is replaced so that a crash in between leaves a pair that
fits; where the authority cannot be reached, the certificate's end is warned of, more often as it comes nearer.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from llmgw_core.errors import LlmgwError
from llmgw_core.net.link import Link
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.pki.certificate import make_key, make_request
from llmgw_core.pki.files import BadCredentials, read_certificate, read_pair, write_certificate, write_key
from llmgw_core.pki.identity import read_identity
from llmgw_core.pki.validity import expiry_warning, renewal_due
from llmgw_core.wire.message import CertificateRenewed, RenewCertificate

LOOK_EVERY_S = 3600.0


class Renewal:
    """The certificate of this process, and the key of a request that is under way."""

    def __init__(self, files: CredentialFiles, log: logging.Logger) -> None:
        self._files = files
        self._log = log
        self._key: ec.EllipticCurvePrivateKey | None = None

    async def watch(self, link: Link) -> None:
        """Ask for a new certificate when it is time, as long as the link lives."""
        while True:
            now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by this machine's clock
            certificate = read_certificate(self._files.certificate)
            warning = expiry_warning(certificate.not_valid_after_utc, now)
            if warning:
                self._log.warning("certificate", extra={"reason": warning})
            if renewal_due(certificate.not_valid_before_utc, certificate.not_valid_after_utc, now):
                self._key = make_key()
                await link.say(RenewCertificate(make_request(self._key).decode()))
            await trio.sleep(LOOK_EVERY_S)

    def take(self, answer: CertificateRenewed) -> bool:
        """Keep the new certificate; whether there is one, which the next link uses."""
        if answer.reason or self._key is None:
            self._log.warning("certificate not renewed", extra={"reason": answer.reason or "nobody asked"})
            return False
        try:
            replace_pair(self._files, self._key, answer.certificate_pem)
        except (LlmgwError, OSError, ValueError) as error:
            self._log.error("certificate not renewed", extra={"reason": str(error)})
            return False
        self._key = None
        self._log.info("certificate renewed")
        return True


def replace_pair(files: CredentialFiles, key: ec.EllipticCurvePrivateKey, certificate_pem: str) -> None:
    """Put a new pair in the place of the old one; raises and leaves the old one where the new does not fit."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    old = read_certificate(files.certificate)
    if read_identity(certificate) != read_identity(old):
        raise BadCredentials(f"the new certificate is for {read_identity(certificate)}, not for {read_identity(old)}")
    new_key, new_certificate = _beside(files.key), _beside(files.certificate)
    write_key(new_key, key, force=True)
    write_certificate(new_certificate, certificate, force=True)
    read_pair(new_certificate, new_key)
    os.replace(new_key, files.key)
    os.replace(new_certificate, files.certificate)


def finish_replacing(files: CredentialFiles) -> None:
    """After a crash between the two moves, make the second one. Call it before the pair is read."""
    new_certificate = _beside(files.certificate)
    if not new_certificate.exists():
        return
    try:
        read_pair(new_certificate, files.key)
    except BadCredentials:
        return
    os.replace(new_certificate, files.certificate)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")

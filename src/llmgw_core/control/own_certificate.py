"""The control plane's own certificate: read anew when its files change, renewed where the authority is on this machine.

Rules: the next connection gets the new one, and those that are there go on; what cannot be read or renewed leaves the
old one in use, and is told, also among the events: after its end nobody gets in any more.
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import trio
from attrs import define, field

from llmgw_core.control.plane import Plane, log
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Role
from llmgw_core.net.renewal import finish_replacing, replace_pair
from llmgw_core.net.tls import CredentialFiles, require_own, server_context
from llmgw_core.pki.certificate import make_key, make_request
from llmgw_core.pki.files import BadCredentials, certificate_pem, read_certificate
from llmgw_core.pki.identity import read_identity
from llmgw_core.pki.validity import describe_time, expiry_warning, renewal_due

LOOK_EVERY_S = 2.0
RENEW_EVERY_S = 3600.0
BY_HAND = "the authority is not on this machine (--ca-dir): `llmgw ca renew NAME` there, and put the new files here"


@define(eq=False)
class OwnCertificate:
    files: CredentialFiles
    context: ssl.SSLContext = field(init=False)
    """For the next connection."""
    _seen: tuple[int, ...] = field(init=False)
    _told: str = ""

    def __attrs_post_init__(self) -> None:
        finish_replacing(self.files)
        self._seen = self._look()
        self.context = server_context(self.files)
        require_own(self.files, Role.SERVER)

    async def watch(self, plane: Plane) -> None:
        """Until cancelled."""
        renew_at = trio.current_time()
        while True:
            if self._look() != self._seen:
                self._read_anew()
                renew_at = trio.current_time()
            if trio.current_time() >= renew_at:
                renew_at = trio.current_time() + RENEW_EVERY_S
                await self._renew_if_due(plane)
            await trio.sleep(LOOK_EVERY_S)

    def _look(self) -> tuple[int, ...]:
        """When its files were last changed; empty: they cannot be looked at, as while one is replaced."""
        try:
            return tuple(each.stat().st_mtime_ns for each in (self.files.certificate, self.files.key))
        except OSError:
            return ()

    def _read_anew(self) -> None:
        self._seen = self._look()
        try:
            require_own(self.files, Role.SERVER)
            self.context = server_context(self.files)
        except (LlmgwError, OSError) as error:
            log.error("the old certificate is used on", extra={"reason": str(error)})
        else:
            log.info("certificate read anew", extra={"reason": self._describe_end()})

    def _describe_end(self) -> str:
        return f"it is good until {describe_time(read_certificate(self.files.certificate).not_valid_after_utc)}"

    async def _renew_if_due(self, plane: Plane) -> None:
        now = datetime.fromtimestamp(plane.now(), UTC)
        try:
            certificate = read_certificate(self.files.certificate)
            if not renewal_due(certificate.not_valid_before_utc, certificate.not_valid_after_utc, now):
                return
            why_not = await self._renew(plane, now)
            if why_not:
                await self._warn(plane, expiry_warning(certificate.not_valid_after_utc, now) or "", why_not)
        except LlmgwError as error:
            log.error("certificate not renewed", extra={"reason": str(error)})

    async def _renew(self, plane: Plane, now: datetime) -> str:
        """Why it is not; empty: it is."""
        if plane.authority is None:
            return BY_HAND
        try:
            await trio.to_thread.run_sync(renew, plane.authority, self.files, now)
        except (LlmgwError, OSError) as error:
            return str(error)
        self._read_anew()
        told = f"the control plane's own: {self._describe_end()}"
        await plane.writer.write(plane.event("certificate renewed", "", told))
        return ""

    async def _warn(self, plane: Plane, warning: str, why_not: str) -> None:
        """In the log each time; among the events when it becomes more urgent, or has another reason."""
        log.warning("certificate not renewed", extra={"reason": f"{warning or 'it is time'}; {why_not}"})
        urgency = warning.rpartition(": ")[2] + why_not
        if warning and urgency != self._told:
            self._told = urgency
            told = f"the control plane's own {warning}, or nobody gets in any more; {why_not}"
            await plane.writer.write(plane.event("certificate ends", "", told))


def renew(authority: Path, files: CredentialFiles, now: datetime) -> None:
    """A new key and certificate, with the names of the last one, in the place of the old ones."""
    from llmgw_core.pki.authority import Authority

    directory = files.certificate.parent
    if not os.access(directory, os.W_OK):  # else one would be issued, and lost, each hour
        raise BadCredentials(f"{directory} cannot be written to")
    key = make_key()
    identity = read_identity(read_certificate(files.certificate))
    issued = Authority.open(authority).renew(identity, make_request(key), now)
    replace_pair(files, key, certificate_pem(issued.certificate).decode())

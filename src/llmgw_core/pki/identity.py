"""Reads who a certificate is about, and judges whether that peer may come in; pure.

In: a certificate, `now`, and what is expected of the peer.  Out: its `Identity`, or `PeerRefused` with one line why.
Rules: the library reads, never a pattern over printed text; exactly one common name and exactly one llmgw URI, and both
say the same name. The chain to the authority is not judged here: TLS has done it, times excepted.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from cryptography import x509
from cryptography.x509.oid import NameOID

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import BadName, Identity, Role
from llmgw_core.pki.certificate import USAGE_NAMES, USAGE_OF_ROLE, serial_text
from llmgw_core.pki.names import Address
from llmgw_core.pki.validity import describe_span, describe_time, has_ended

ACCEPTING_CLOCK = "the control plane's clock"
"""Who accepts connections and so refuses peers; a refusal is read on both machines, so it cannot say `this machine`."""

_SCHEME = "llmgw://"
_SHOWN = 80


class NotAnIdentity(LlmgwError):
    """A certificate that does not say, in exactly one way, who its holder is."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class PeerRefused(LlmgwError):
    """A peer that may not come in; the text is the log line here, and goes to the peer as it is."""

    def __init__(self, who: str, reason: str) -> None:
        self.who = who
        self.reason = reason
        super().__init__(f"{who} refused: {reason}")


def read_identity(certificate: x509.Certificate) -> Identity:
    """The role and name that a certificate states."""
    try:
        common_name, uri = _only_common_name(certificate), _only_uri(certificate)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise NotAnIdentity(f"its certificate cannot be read: {_shown(str(error))}") from error
    identity = _parse_uri(uri)
    if identity.name != common_name:
        raise NotAnIdentity(f"its certificate's common name is {_shown(common_name)} and its URI {_shown(uri)}")
    return identity


def verify_peer(
    certificate: x509.Certificate,
    now: datetime,
    *,
    roles: Collection[Role],
    revoked: Collection[str] = (),
    claimed: str | None = None,
) -> Identity:
    """The peer's identity when it is one of `roles`, within its dates, not revoked, and is who it claims to be.

    `revoked` holds serials as `serial_text` writes them. `claimed` is the name that the peer gave; None: it gave none.
    """
    try:
        identity = read_identity(certificate)
    except NotAnIdentity as error:
        raise PeerRefused(
            "peer" if claimed is None else f"peer that claims to be {_shown(claimed)}", error.reason
        ) from error
    reason = _role_fault(certificate, identity, roles)
    if reason is None and claimed is not None and claimed != identity.name:
        raise PeerRefused(
            f"{identity.role.value} {_shown(claimed)}", f"its certificate's common name is {identity.name}"
        )
    reason = reason or _revocation_fault(certificate, revoked) or _time_fault(certificate, identity, now)
    if reason is not None:
        raise PeerRefused(f"{identity.role.value} {identity.name}", reason)
    return identity


def list_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """What a certificate is valid for, as `DNS:llmgw` and `IP:10.0.0.140`; empty when it says nothing readable."""
    try:
        names = _alternative_names(certificate)
        return (
            *(f"DNS:{_shown(name)}" for name in names.get_values_for_type(x509.DNSName)),
            *(f"IP:{ip}" for ip in _addresses(names)),
        )
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return ()


def describe_time_fault(
    certificate: x509.Certificate, now: datetime, clock: str = "this machine's clock"
) -> str | None:
    """Why a certificate is not valid at `now`, with both times and whose `clock` that is; None: it is valid."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    shows = f"{clock} says {describe_time(now)}"
    if has_ended(end, now):
        return f"expired on {describe_time(end)}, {describe_span(now - end)} ago ({shows})"
    if now < begin:
        return (
            f"is not yet valid: it begins on {describe_time(begin)} and {shows}, {describe_span(begin - now)} earlier;"
            " that clock is wrong, or the authority's was when it issued the certificate"
        )
    return None


def _only_common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(found) != 1:
        raise NotAnIdentity(f"its certificate has {len(found) or 'no'} common names, and needs exactly one")
    return str(found[0].value)


def _only_uri(certificate: x509.Certificate) -> str:
    uris = _alternative_names(certificate).get_values_for_type(x509.UniformResourceIdentifier)
    ours = [uri for uri in uris if uri.lower().startswith(_SCHEME)]
    if not ours:
        raise NotAnIdentity("its certificate has no llmgw:// URI, which would say its role: llmgw did not issue it")
    if len(ours) > 1:
        raise NotAnIdentity(f"its certificate has {len(ours)} llmgw:// URIs, and needs exactly one")
    return ours[0]


def _parse_uri(uri: str) -> Identity:
    role, _, name = uri.removeprefix(_SCHEME).partition("/")
    try:
        return Identity(Role(role), name)
    except (ValueError, BadName):
        raise NotAnIdentity(f"its certificate's URI {_shown(uri)} is no role and name") from None


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])


def _addresses(names: x509.SubjectAlternativeName) -> list[Address]:
    return [ip for ip in names.get_values_for_type(x509.IPAddress) if isinstance(ip, Address)]


def _role_fault(certificate: x509.Certificate, identity: Identity, roles: Collection[Role]) -> str | None:
    if identity.role not in roles:
        wanted = " or ".join(sorted(role.value for role in roles))
        return f"its certificate's role is {identity.role.value}, and this needs {wanted}"
    usage = USAGE_OF_ROLE[identity.role]
    if usage not in _usages(certificate):
        return f"its certificate is not for {USAGE_NAMES[usage]}, which a {identity.role.value} needs"
    return None


def _usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return []


def _revocation_fault(certificate: x509.Certificate, revoked: Collection[str]) -> str | None:
    serial = serial_text(certificate)
    return f"its certificate, serial {serial}, is revoked" if serial in revoked else None


def _time_fault(certificate: x509.Certificate, identity: Identity, now: datetime) -> str | None:
    fault = describe_time_fault(certificate, now, ACCEPTING_CLOCK)
    if fault is None:
        return None
    if not has_ended(certificate.not_valid_after_utc, now):
        return f"its certificate {fault}"
    return f"its certificate {fault}; {way_to_renew(identity)}"


def way_to_renew(identity: Identity) -> str:
    """What to do once a certificate has ended: it can no longer be renewed over its own connection."""
    if identity.role is Role.NODE:
        return "re-run onboarding"
    return f"on the authority's host: llmgw ca renew {identity.name} --role {identity.role.value}"


def _shown(text: str) -> str:
    """A stranger's text, fit for one line of a log."""
    plain = text if text.isprintable() and text else repr(text)
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"

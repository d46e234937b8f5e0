"""The two TLS contexts of the link, and what to say when a handshake fails.

In: files of a certificate, its key and the authority's root.  Out: contexts, and one line for any error.
Rules: TLS 1.3, both sides prove themselves, the authority's root and no other, and nothing turns any of it off. The
server leaves a client certificate's dates to `pki.identity.verify_peer`, which can name the node and the date; whoever
accepts a connection must call it. Tickets are off: a resumed session would outlive a revocation. A client checks the
dates and the server's name or address itself; a common name is never looked at.
"""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from attrs import frozen
from cryptography import x509

from llmgw_core.model.identity import Role
from llmgw_core.pki.files import BadCredentials, read_certificate, read_pair
from llmgw_core.pki.identity import describe_time_fault, list_names, read_identity

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, openssl/x509_vfy.h; ssl has no name for it

# openssl/x509_vfy.h
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (2, 7, 18, 19, 20, 21, 30)
_WRONG_PURPOSE = 26
_OTHER_NAME = (62, 64)

_A = {Role.NODE: "a", Role.SERVER: "a", Role.GATEWAY: "a", Role.OPERATOR: "an"}
_CLOSED = "the peer closed the connection without a word"
_ALERTS = {
    "UNKNOWN_CA": "it does not trust the authority that issued our certificate",
    "CERTIFICATE_REQUIRED": "it asks for a certificate, and we gave none",
    "UNSUPPORTED_CERTIFICATE": "our certificate is of the wrong kind for this side of a connection",
    "CERTIFICATE_EXPIRED": "our certificate is not valid at the time that its clock shows",
    "CERTIFICATE_REVOKED": "our certificate is revoked",
    "CERTIFICATE_UNKNOWN": "it cannot accept our certificate",
    "BAD_CERTIFICATE": "our certificate does not pass its checks (its name, address or dates)",
    "DECRYPT_ERROR": "our certificate was signed by another authority than the one that it names",
    "PROTOCOL_VERSION": "it does not speak TLS 1.3, the only version that llmgw speaks",
    "HANDSHAKE_FAILURE": "it has no way of encryption in common with us",
    "ACCESS_DENIED": "it denies us access",
    "INTERNAL_ERROR": "it failed, and its log says more",
}
_FAULTS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer gave no certificate",
    "HTTP_REQUEST": "the peer speaks plain HTTP on a TLS port: it should use https",
    "HTTPS_PROXY_REQUEST": "the peer takes this for an HTTPS proxy",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS: is it another port, or plain HTTP?",
    "UNSUPPORTED_PROTOCOL": "the peer does not speak TLS 1.3, the only version that llmgw speaks",
    "UNEXPECTED_EOF_WHILE_READING": _CLOSED,
    "NO_SHARED_CIPHER": "the peer has no way of encryption in common with us",
}


@frozen
class CredentialFiles:
    """Where this side's certificate and key are, and the authority's root."""

    certificate: Path
    key: Path
    authority: Path


class Encrypted(Protocol):
    """An SSLObject, an SSLSocket or a trio SSLStream."""

    def getpeercert(self, binary_form: Literal[True]) -> bytes | None: ...


def server_context(files: CredentialFiles) -> ssl.SSLContext:
    """For a listener; each accepted peer is still to be judged by `verify_peer`, dates included."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= NO_CHECK_TIME
    context.num_tickets = 0
    return context


def client_context(files: CredentialFiles) -> ssl.SSLContext:
    """For a connection to a server, whose name or address must stand in its certificate."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    context.check_hostname = True
    context.hostname_checks_common_name = False
    return context


def _context(protocol: int, files: CredentialFiles) -> ssl.SSLContext:
    read_pair(files.certificate, files.key)  # its errors say what is wrong with which file; OpenSSL's do not
    read_certificate(files.authority)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(files.authority)
    except (OSError, ValueError) as error:
        raise BadCredentials(
            f"cannot use {files.certificate} with {files.key} and {files.authority}: {error}"
        ) from error
    return context


def require_own(files: CredentialFiles, role: Role, name: str | None = None) -> str:
    """The name in this side's own certificate; raises where that is of another role, or of another name than `name`."""
    own = read_identity(read_certificate(files.certificate))
    if own.role is not role or name not in (None, own.name):
        wanted = f"{role.value} {name}" if name else f"{_A[role]} {role.value}"
        raise BadCredentials(f"{files.certificate} is the certificate of {own.role.value} {own.name}, not of {wanted}")
    return own.name


def peer_certificate(connection: Encrypted) -> x509.Certificate:
    """What the other side showed, once the handshake is done; an ssl.SSLError where that is nothing readable."""
    der = connection.getpeercert(True)
    if der is None:
        raise ssl.SSLError("the peer gave no certificate")
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise ssl.SSLError("the peer's certificate cannot be read") from error


class Peek:
    """Asks a server for its certificate, trusting nothing, so that an error can say what is wrong with it.

    Python forgets a certificate that it refuses. This is half a handshake on a connection of its own: it proves nothing
    about the server, sends it nothing but a hello, and can carry no data. No I/O: send `hello`, `feed` what comes.
    """

    def __init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, outgoing)
        self._advance()
        self.hello = outgoing.read()

    def feed(self, received: bytes) -> x509.Certificate | None:
        """The certificate once enough has come; None: give more. An ssl.SSLError: there is no more to learn."""
        self._incoming.write(received)
        return peer_certificate(self._tls) if self._advance() else None

    def _advance(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


def explain_tls_error(error: BaseException, seen: x509.Certificate | None = None, now: datetime | None = None) -> str:
    """One line for an operator, for any error of a connection and whatever it wraps.

    `seen` is the peer's certificate, if a `Peek` got it, and `now` this machine's time: with them, the text has names
    and dates.
    """
    found = _innermost(error)
    return _one_line(_explain(found, seen, now)) or type(found).__name__


def _explain(error: BaseException, seen: x509.Certificate | None, now: datetime | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_refusal(error, seen, now)
    if isinstance(error, ssl.SSLError):
        return _explain_alert_or_fault(error)
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return _CLOSED
    return str(error)


def _innermost(error: BaseException) -> BaseException:
    """The TLS error that another one wraps, as trio does; or else the one that is at the bottom."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    for each in chain:
        if isinstance(each, ssl.SSLError):
            return each
    return next((each for each in chain if isinstance(each, OSError)), error)


def _explain_refusal(error: ssl.SSLCertVerificationError, seen: x509.Certificate | None, now: datetime | None) -> str:
    code = getattr(error, "verify_code", 0)
    if code in _OTHER_NAME:
        return _explain_other_name(error, seen)
    if code in (_NOT_YET_VALID, _EXPIRED):
        return _explain_dates(code, seen, now)
    if code in _UNKNOWN_AUTHORITY:
        return "the peer's certificate was issued by another authority than ours: compare both sides' ca.crt"
    if code == _WRONG_PURPOSE:
        return "the peer's certificate is of the wrong kind for that side of a connection (clientAuth, serverAuth)"
    return f"the peer's certificate does not pass: {getattr(error, 'verify_message', '') or error}"


def _explain_other_name(error: ssl.SSLCertVerificationError, seen: x509.Certificate | None) -> str:
    said = error.verify_message.strip().removesuffix(".")
    if seen is None:
        return f"the server's certificate is for other names: {said}"
    names = ", ".join(list_names(seen)) or "no name and no address"
    return f"the server's certificate is for other names: {said}; it is valid for {names}"


def _explain_dates(code: int, seen: x509.Certificate | None, now: datetime | None) -> str:
    fault = describe_time_fault(seen, now) if seen is not None and now is not None else None
    if fault is not None:
        return f"the peer's certificate {fault}"
    if code == _EXPIRED:
        return "the peer's certificate, or its authority's, has expired by this machine's clock"
    return "the peer's certificate is not yet valid: this machine's clock is wrong, or the authority's was"


def _explain_alert_or_fault(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    _, is_alert, alert = reason.partition("ALERT_")
    if is_alert:
        meaning = _ALERTS.get(alert, f"TLS alert {alert.lower().replace('_', ' ')}")
        return f"the peer refused us: {meaning}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _CLOSED
    return _FAULTS.get(reason) or f"TLS failed: {reason.lower().replace('_', ' ') or error}"


def _one_line(text: str) -> str:
    return " ".join(text.split())

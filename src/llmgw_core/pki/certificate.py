"""Makes certificates: the authority's own, and one for an identity.

In: who, which public key, how long, `now`.  Out: a signed certificate.  No clock, no file; only serials are random.
Rules: names come from the caller, never from a request, which gives its public key and nothing else; a leaf never
outlives its authority; ECDSA P-256 throughout; every certificate passes OpenSSL's strict checks.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from attrs import field, frozen
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity, Role, check_name
from llmgw_core.pki.names import AlternativeNames
from llmgw_core.pki.validity import (
    AUTHORITY_LIFE_DAYS,
    BACKDATED,
    DAY,
    LIFE_DAYS,
    cut_life,
    describe_time,
    has_ended,
)

USAGE_OF_ROLE = {
    Role.NODE: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.OPERATOR: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.GATEWAY: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
}
_SERIAL = re.compile(r"[0-9a-f]{1,40}")  # RFC 5280, 4.1.2.2: 20 octets at most
_SHOWN_CHARACTERS = 80
USAGE_NAMES = {ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth", ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth"}


class CannotIssue(LlmgwError):
    """A certificate that this authority cannot make, and why."""


class BadSerial(LlmgwError):
    """A text that no certificate's serial is written as."""


class BadRequest(LlmgwError):
    """A signing request that proves no key, or a key of a kind that llmgw does not use."""


@frozen
class Signer:
    """An authority's certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


@frozen
class Order:
    """What a certificate shall say."""

    identity: Identity
    names: AlternativeNames = field(factory=AlternativeNames)
    life_days: int = LIFE_DAYS

    def __attrs_post_init__(self) -> None:
        is_server = self.identity.role is Role.SERVER
        if is_server and not self.names:
            raise CannotIssue(f"cannot issue {self.identity}: a server needs at least one --ip or --dns")
        if self.names and not is_server:
            raise CannotIssue(f"cannot issue {self.identity}: --ip and --dns are for servers, nobody connects to it")
        _check_days(self.life_days)


def make_key() -> ec.EllipticCurvePrivateKey:
    """A new ECDSA P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def make_authority_certificate(
    name: str, key: ec.EllipticCurvePrivateKey, now: datetime, days: int = AUTHORITY_LIFE_DAYS
) -> x509.Certificate:
    """A self-signed root that signs leaves only."""
    _check_days(days)
    subject = _common_name(check_name(name))
    return (
        _begin(subject, subject, key.public_key(), now)
        .not_valid_after(_to_second(_end(now, days)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def make_leaf(order: Order, public_key: ec.EllipticCurvePublicKey, signer: Signer, now: datetime) -> x509.Certificate:
    """A certificate for one identity, which ends no later than its authority."""
    authority = signer.certificate
    check_authority(authority, now)
    until, _ = cut_life(_to_second(_end(now, order.life_days)), authority.not_valid_after_utc)
    usage = USAGE_OF_ROLE[order.identity.role]
    return (
        _begin(_common_name(order.identity.name), authority.subject, public_key, now)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_alternative_names(order), critical=False)
        .add_extension(_issued_by(authority), critical=False)
        .sign(signer.key, hashes.SHA256())
    )


def check_authority(authority: x509.Certificate, now: datetime) -> None:
    """Refuse an authority whose own certificate has ended, or has not begun by this machine's clock."""
    end, begin = authority.not_valid_after_utc, authority.not_valid_before_utc
    if has_ended(end, now):
        raise CannotIssue(
            f"cannot issue: the authority's own certificate expired on {describe_time(end)}; make a new authority with"
            " `llmgw ca init --force` and issue every certificate again"
        )
    if now < begin:
        raise CannotIssue(
            f"cannot issue: the authority's own certificate begins on {describe_time(begin)} and this machine's clock"
            f" says {describe_time(now)}; set the clock"
        )


def read_request(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a signing request, once the request proves that its sender has the private one."""
    try:
        request = x509.load_pem_x509_csr(pem)
        proven, key = request.is_signature_valid, request.public_key()
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise BadRequest(f"cannot read the signing request: {_first_line(error)}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadRequest("the signing request's key is not ECDSA P-256, the only kind that llmgw uses")
    if not proven:
        raise BadRequest("the signing request is not signed with its own key: its sender does not prove to have it")
    return key


def make_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A signing request (PEM) that proves the key and names nobody: the authority knows whom it talks to."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def serial_text(certificate: x509.Certificate) -> str:
    """The serial as records, lists and revocations write it: hexadecimal, small letters."""
    return f"{certificate.serial_number:x}"


def parse_serial(text: str) -> str:
    """As `serial_text` writes it, from what people paste: `4F:BB:…`, `0x4fbb…`, with blanks or zeros before."""
    digits = "".join(text.split()).replace(":", "").lower().removeprefix("0x").lstrip("0")
    if not _SERIAL.fullmatch(digits):
        raise BadSerial(f"{text[:_SHOWN_CHARACTERS]!r} is no serial: 1 to 40 hexadecimal digits, not all zero")
    return digits


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 over the whole certificate, hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def key_identifier(certificate: x509.Certificate) -> str:
    """Which key a certificate is about: its subject key identifier, hexadecimal."""
    return x509.SubjectKeyIdentifier.from_public_key(certificate.public_key()).digest.hex()


def _begin(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_to_second(now - BACKDATED))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative_names(order: Order) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [
            x509.UniformResourceIdentifier(str(order.identity)),
            *map(x509.DNSName, order.names.dns),
            *map(x509.IPAddress, order.names.ips),
        ]
    )


def _issued_by(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _check_days(days: int) -> None:
    if not 1 <= days <= 36500:
        raise CannotIssue(f"cannot issue for {days} days: give 1 to 36500")


def _end(now: datetime, days: int) -> datetime:
    return now + days * DAY


def _to_second(moment: datetime) -> datetime:
    """X.509 counts in seconds."""
    return moment - timedelta(microseconds=moment.microsecond)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

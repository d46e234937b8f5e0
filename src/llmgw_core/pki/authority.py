"""The authority: a directory with its certificate, its key and the record of what it issued.

    DIRECTORY/        0700
      ca.crt          the root that everybody trusts
      ca.key          0600; whoever reads it can be anybody
      issued.jsonl    one line per certificate

Rules: a certificate is recorded before it is given out; names come from the caller, a request gives its key only; an
authority whose own certificate has ended issues nothing, and says so from 90 days before.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from attrs import field, frozen
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity
from llmgw_core.pki.certificate import (
    CannotIssue,
    Order,
    Signer,
    key_identifier,
    make_authority_certificate,
    make_key,
    make_leaf,
    read_request,
)
from llmgw_core.pki.files import (
    KEY_MODE,
    BadCredentials,
    NewFile,
    certificate_pem,
    describe_open_key,
    key_pem,
    make_directory,
    read_pair,
    write_files,
)
from llmgw_core.pki.record import Record, append_record, describe_issued, read_records
from llmgw_core.pki.validity import (
    AUTHORITY_LIFE_DAYS,
    AUTHORITY_WARNING_DAYS,
    DAY,
    LIFE_DAYS,
    cut_life,
    describe_left,
    describe_time,
    has_ended,
)

AUTHORITY_NAME = "llmgw-authority"
CERTIFICATE_FILE = "ca.crt"
KEY_FILE = "ca.key"
RECORD_FILE = "issued.jsonl"


class NoAuthority(LlmgwError):
    """A directory that holds no authority, or one that cannot be used."""


@frozen
class Issued:
    """A certificate, its record, and what its operator should hear; `key` is None when the requester keeps it."""

    certificate: x509.Certificate
    record: Record
    key: ec.EllipticCurvePrivateKey | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()


@frozen
class Authority:
    """An authority on this host, opened."""

    directory: Path
    signer: Signer

    @classmethod
    def create(
        cls,
        directory: Path,
        now: datetime,
        *,
        name: str = AUTHORITY_NAME,
        days: int = AUTHORITY_LIFE_DAYS,
        force: bool = False,
    ) -> Authority:
        """Make a new authority; with `force` over an old one, whose certificates then no longer count."""
        key = make_key()
        certificate = make_authority_certificate(name, key, now, days)
        make_directory(directory)
        files = [
            NewFile(directory / KEY_FILE, key_pem(key), KEY_MODE),
            NewFile(directory / CERTIFICATE_FILE, certificate_pem(certificate)),
        ]
        with _alone_in(directory):
            write_files(files, force=force)
        return cls(directory, Signer(certificate, key))

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """The authority of a directory; refused when its key is open to others or does not fit."""
        key, certificate = directory / KEY_FILE, directory / CERTIFICATE_FILE
        if not (key.exists() or certificate.exists()):
            raise NoAuthority(f"there is no authority in {directory}; `llmgw ca init` makes one, --dir names another")
        try:
            pair = read_pair(certificate, key)
        except BadCredentials as error:
            raise NoAuthority(f"cannot open the authority in {directory}: {error}") from error
        fault = describe_open_key(key)
        if fault is not None:
            raise NoAuthority(f"cannot open the authority in {directory}: {fault}")
        return cls(directory, Signer(pair.certificate, pair.key))

    @property
    def certificate(self) -> x509.Certificate:
        return self.signer.certificate

    def issue(self, order: Order, now: datetime) -> Issued:
        """A certificate with a new key."""
        key = make_key()
        certificate, record = self._sign(order, key.public_key(), now)
        return Issued(certificate, record, key, self._warnings(order, now))

    def renew(self, identity: Identity, request: bytes, now: datetime, *, days: int = LIFE_DAYS) -> Issued:
        """A certificate for the key of a signing request (PEM), with the names of the identity's latest one.

        Who the requester is, and that it is not revoked, is what the caller has made sure of; the request says nothing.
        """
        public_key = read_request(request)
        order = Order(identity, self.latest(identity).names, days)
        certificate, record = self._sign(order, public_key, now)
        return Issued(certificate, record, warnings=self._warnings(order, now))

    def issued(self) -> tuple[Record, ...]:
        """What this authority has issued, in order; an earlier authority of the same directory does not count."""
        mine = key_identifier(self.certificate)
        return tuple(each for each in read_records(self.directory / RECORD_FILE) if each.authority == mine)

    def latest(self, identity: Identity) -> Record:
        """The latest record of an identity."""
        for record in reversed(self.issued()):
            if record.identity == identity:
                return record
        role, name = identity.role.value, identity.name
        raise CannotIssue(f"cannot renew {role} {name}: no certificate was issued to it; llmgw ca issue {role} {name}")

    def _sign(self, order: Order, key: ec.EllipticCurvePublicKey, now: datetime) -> tuple[x509.Certificate, Record]:
        certificate = make_leaf(order, key, self.signer, now)
        record = describe_issued(certificate, order.identity, order.names, key_identifier(self.certificate))
        append_record(self.directory / RECORD_FILE, record)
        return certificate, record

    def _warnings(self, order: Order, now: datetime) -> tuple[str, ...]:
        _, cut = cut_life(now + order.life_days * DAY, self.certificate.not_valid_after_utc)
        return tuple(text for text in (cut, describe_authority_end(self.certificate, now)) if text is not None)


def describe_authority_end(certificate: x509.Certificate, now: datetime) -> str | None:
    """What to say when the authority's own certificate has ended, or ends within 90 days."""
    end = certificate.not_valid_after_utc
    if end - now > AUTHORITY_WARNING_DAYS * DAY:
        return None
    if has_ended(end, now):
        return f"the authority's own certificate expired on {describe_time(end)}: nobody is let in any more"
    left = f"ends in {describe_left(end, now)}, on {describe_time(end)}"
    return f"the authority's own certificate {left}, and all others with it"


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

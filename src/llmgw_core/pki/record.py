"""The list of the certificates that an authority has issued: one JSON line each, only ever appended.

Rules: a line is on the disk before its certificate is given to anybody; two processes that append at once both stay; a
line that a crash or a full disk cut short is no record, and the next append removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import frozen
from cryptography import x509

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.certificate import fingerprint, serial_text
from llmgw_core.pki.files import KEY_MODE, sync_directory
from llmgw_core.pki.names import AlternativeNames, parse_names
from llmgw_core.pki.validity import describe_time


class CannotRecord(LlmgwError):
    """The record does not take another line; nothing was issued."""


class BadRecord(LlmgwError):
    """A line of the record that nobody can read."""


@frozen
class Record:
    """One certificate that was issued; `authority` is the key identifier of the one that signed it."""

    serial: str
    identity: Identity
    not_before: datetime
    not_after: datetime
    names: AlternativeNames
    fingerprint: str
    authority: str


def describe_issued(
    certificate: x509.Certificate, identity: Identity, names: AlternativeNames, authority: str
) -> Record:
    """The record of a certificate that was just made."""
    return Record(
        serial=serial_text(certificate),
        identity=identity,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        names=names,
        fingerprint=fingerprint(certificate),
        authority=authority,
    )


def append_record(path: Path, record: Record) -> None:
    """Add one line and wait until it is on the disk; on failure the file is as it was."""
    line = json.dumps(plain_record(record)).encode() + b"\n"
    try:
        is_new = not path.exists()
        with _locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, fcntl.LOCK_EX) as descriptor:
            _append(descriptor, line)
        if is_new:
            sync_directory(path.parent)
    except OSError as error:
        raise CannotRecord(f"cannot record the certificate in {path}: {error.strerror}; nothing was issued") from error


def read_records(path: Path) -> tuple[Record, ...]:
    """All records in the order of issue; none when there is no file yet."""
    try:
        with _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
            content = _read_all(descriptor)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise BadRecord(f"cannot read {path}: {error.strerror}") from error
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return tuple(_parse_line(line, f"{path}:{number}") for number, line in enumerate(lines, 1))


def plain_record(record: Record) -> dict[str, Any]:
    """A record as JSON has it."""
    return {
        "serial": record.serial,
        "role": record.identity.role.value,
        "name": record.identity.name,
        "not_before": describe_time(record.not_before),
        "not_after": describe_time(record.not_after),
        "dns": list(record.names.dns),
        "ips": [str(ip) for ip in record.names.ips],
        "fingerprint": record.fingerprint,
        "authority": record.authority,
    }


def _parse_line(line: bytes, where: str) -> Record:
    try:
        plain = json.loads(line)
        return Record(
            serial=str(plain["serial"]),
            identity=Identity(Role(plain["role"]), plain["name"]),
            not_before=datetime.fromisoformat(plain["not_before"]),
            not_after=datetime.fromisoformat(plain["not_after"]),
            names=parse_names(plain["dns"], plain["ips"]),
            fingerprint=str(plain["fingerprint"]),
            authority=str(plain["authority"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, LlmgwError) as error:
        raise BadRecord(f"{where}: cannot read the record of a certificate; mend or remove this line") from error


@contextmanager
def _locked(path: Path, flags: int, kind: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, KEY_MODE)
    try:
        fcntl.flock(descriptor, kind)  # closing lets go
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, line: bytes) -> None:
    whole = _read_all(descriptor).rfind(b"\n") + 1
    os.ftruncate(descriptor, whole)
    try:
        _write_all(descriptor, line)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, whole)
        raise


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()

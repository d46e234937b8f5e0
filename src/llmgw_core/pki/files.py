"""Keys and certificates on disk: written whole or not at all, read with an answer to what is wrong.

Rules: a key is 0600 from its first byte; nothing that exists is replaced unless `force` says so; a file appears under
its name only when it is complete and on the disk. Two files are two renames: a reader that catches the moment between
them is told that key and certificate do not belong together, and reads again.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import field, frozen
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from llmgw_core.errors import LlmgwError

KEY_MODE = 0o600
CERTIFICATE_MODE = 0o644
DIRECTORY_MODE = 0o700


class FileExists(LlmgwError):
    """A file that stands where another shall be written, and `force` was not given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"cannot write {path}: it exists; --force replaces it")


class CannotWrite(LlmgwError):
    """The disk does not take a file: full, read-only, not ours."""


class BadCredentials(LlmgwError):
    """A key or certificate file that cannot be used, and why."""


@frozen
class Pair:
    """A certificate and its key, which belong together."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


def make_directory(path: Path) -> None:
    """A directory that only its owner reads; one that exists stays as it is."""
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"cannot make the directory {path}: {error.strerror}") from error


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise for the first that exists."""
    for path in paths:
        if os.path.lexists(path):
            raise FileExists(path)


@frozen
class NewFile:
    """What a file shall hold."""

    path: Path
    content: bytes = field(repr=False)
    mode: int = CERTIFICATE_MODE


def write_files(files: Sequence[NewFile], *, force: bool = False) -> None:
    """Put all files on the disk, and only then under their names; without `force`, FileExists where there is one."""
    if not force:
        refuse_existing(file.path for file in files)
    with ExitStack() as stack:
        ready = [(_write_temporary(file, stack), file.path) for file in files]
        for temporary, path in ready:
            with _named_errors(path):
                _move(temporary, path, force)
                sync_directory(path.parent)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise FileExists(path) from None
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror}") from error


def _write_temporary(wanted: NewFile, stack: ExitStack) -> Path:
    """A complete file under another name beside the one that is wanted; the stack removes what is left of it."""
    with _named_errors(wanted.path):
        descriptor, name = tempfile.mkstemp(prefix=f".{wanted.path.name}.", dir=wanted.path.parent)  # 0600
        stack.callback(Path(name).unlink, missing_ok=True)
        with open(descriptor, "wb") as file:
            file.write(wanted.content)
            file.flush()
            os.fchmod(file.fileno(), wanted.mode)
            os.fsync(file.fileno())
    return Path(name)


def _move(temporary: Path, path: Path, force: bool) -> None:
    if force:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)  # unlike a rename, it fails where a file exists
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise
        refuse_existing([path])  # FAT and the like have no links
        os.replace(temporary, path)


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_key(path: Path, key: ec.EllipticCurvePrivateKey, *, force: bool = False) -> None:
    write_files([NewFile(path, key_pem(key), KEY_MODE)], force=force)


def write_certificate(path: Path, certificate: x509.Certificate, *, force: bool = False) -> None:
    write_files([NewFile(path, certificate_pem(certificate))], force=force)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file."""
    content = _read(path, "certificate")
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise BadCredentials(f"{path} is no certificate in PEM form{_what_instead(content)}") from error


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The ECDSA key of a PEM file."""
    content = _read(path, "key")
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        raise BadCredentials(f"{path} is a key with a password, which llmgw cannot ask for") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        if _KEY in content:
            raise BadCredentials(f"{path} is a private key that is damaged: is it cut short?") from error
        raise BadCredentials(f"{path} is no private key in PEM form{_what_instead(content)}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCredentials(f"{path} is not an ECDSA key, the only kind that llmgw uses")
    return key


def read_pair(certificate_path: Path, key_path: Path) -> Pair:
    """A certificate and its key, once they are seen to belong together."""
    certificate, key = read_certificate(certificate_path), read_key(key_path)
    if certificate.public_key() != key.public_key():
        raise BadCredentials(f"the key {key_path} does not belong to the certificate {certificate_path}")
    return Pair(certificate, key)


def describe_open_key(path: Path) -> str | None:
    """What to say of a key that others than its owner can read; None: it is closed, or not there.

    An agent warns and goes on, since a node that is locked out by its own file helps nobody. The authority refuses.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
    if mode & 0o077:
        return f"the key {path} is open to others (mode {mode:04o}): chmod 600 {path}"
    return None


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadCredentials(f"cannot read the {what} {path}: {error.strerror}") from error


_KEY = b"PRIVATE KEY-----"


def _what_instead(content: bytes) -> str:
    if _KEY in content:
        return ": it holds a private key"
    if b"-----BEGIN CERTIFICATE-----" in content:
        return ": it holds a certificate"
    if b"-----BEGIN CERTIFICATE REQUEST-----" in content:
        return ": it holds a signing request"
    return ": it is empty" if not content.strip() else ""

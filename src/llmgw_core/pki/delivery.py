"""What the authority gives out: NAME.crt, NAME.key and ca.crt in one directory.

Rules: the place is looked at before anything is issued, so that no certificate is recorded that cannot be written;
nothing that exists is replaced without `force`, except a root that is this authority's already.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.pki.authority import CERTIFICATE_FILE, Authority, Issued
from llmgw_core.pki.files import (
    KEY_MODE,
    NewFile,
    certificate_pem,
    key_pem,
    make_directory,
    refuse_existing,
    write_files,
)


class NameTaken(LlmgwError):
    """A name whose files would be the authority's own."""


@frozen
class Delivery:
    """The files of one identity."""

    directory: Path
    name: str

    def __attrs_post_init__(self) -> None:
        if f"{self.name}.crt" == CERTIFICATE_FILE:
            raise NameTaken(f"cannot issue to {self.name!r}: its files would be the authority's own; take another name")

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.directory / f"{self.name}.key"

    @property
    def authority(self) -> Path:
        return self.directory / CERTIFICATE_FILE


def prepare_delivery(delivery: Delivery, authority: Authority, *, force: bool = False) -> None:
    """Make the directory, and refuse what stands in the way."""
    make_directory(delivery.directory)
    if force:
        return
    refuse_existing([delivery.certificate, delivery.key])
    if not _has_root(delivery, authority):
        refuse_existing([delivery.authority])


def write_delivery(
    delivery: Delivery, authority: Authority, issued: Issued, *, force: bool = False
) -> tuple[Path, ...]:
    """Write what was issued; the key only where the authority made it. Returns the paths."""
    files = [NewFile(delivery.certificate, certificate_pem(issued.certificate))]
    if issued.key is not None:
        files.append(NewFile(delivery.key, key_pem(issued.key), KEY_MODE))
    if not _has_root(delivery, authority):
        files.append(NewFile(delivery.authority, certificate_pem(authority.certificate)))
    write_files(files, force=force)
    return (*dict.fromkeys([*(file.path for file in files), delivery.authority]),)


def _has_root(delivery: Delivery, authority: Authority) -> bool:
    try:
        return delivery.authority.read_bytes() == certificate_pem(authority.certificate)
    except OSError:
        return False

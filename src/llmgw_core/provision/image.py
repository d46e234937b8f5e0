"""Looks at a cloud image, and at the checksums beside it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from llmgw_core.provision.facts import Image

_QCOW2 = b"QFI\xfb"
# docs/interop/qcow2.rst: bytes 24 to 31 hold the size of the disk, big-endian.
_HEADER_BYTES = 32
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *]?(?:.*/)?([^/]+)")
_BLOCK_BYTES = 4 << 20


def look_at_image(path: Path, expected_sha256: str) -> Image:
    """Without a digest that was given, the one in SHA256SUMS or NAME.sha256 beside it counts."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            return Image(trouble="is no regular file: name a cloud image")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        trouble = _no_image(header)
        if trouble:
            return Image(trouble=trouble)
        expected, by = (expected_sha256.lower(), "--image-sha256") if expected_sha256 else _stated_beside(path)
        size = int.from_bytes(header[24:32], "big") if header.startswith(_QCOW2) else info.st_size
        return Image("", size, digest_of(path) if expected else "", expected, by)
    except FileNotFoundError:
        return Image(trouble="is missing: download a cloud image first")
    except OSError as error:
        return Image(trouble=f"cannot be read: {error.strerror}")


def _no_image(header: bytes) -> str:
    if len(header) < _HEADER_BYTES:
        return "is too short for an image: download it again"
    for magic, what in ((b"\xfd7zXZ", "xz"), (b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd")):
        if header.startswith(magic):
            return f"is packed with {what}: unpack it first"
    if header.lstrip()[:1] == b"<":
        return "is a web page, not an image: download it again"
    return ""


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _stated_beside(path: Path) -> tuple[str, str]:
    for beside in (path.with_name("SHA256SUMS"), path.with_name(f"{path.name}.sha256")):
        try:
            text = beside.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for found in filter(None, map(_LINE.fullmatch, text.splitlines())):
            if found[2] == path.name:
                return found[1].lower(), str(beside)
    return "", ""

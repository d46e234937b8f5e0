"""What a whole copy of a model's weights is made of: names, sizes, digests.

In: a manifest's text, what was found.  Out: a `Manifest`, and a line for each file that is not as it should be.  Pure.
Rule: names lead to nowhere outside of the directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from attrs import field, frozen

from llmgw_core.discovery.weight_file import shown
from llmgw_core.errors import LlmgwError
from llmgw_core.model.replica import frozen_mapping

MANIFEST = "llmgw-manifest.json"
"""Within a directory; beside a file it is that after the file's name: `q4.gguf.llmgw-manifest.json`."""

_VERSION_KEY, _VERSION = "llmgw_manifest", 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NotAManifest(LlmgwError):
    """A text that no `llmgw weights manifest` wrote; goes on after its name."""

    def __init__(self, reason: str, way: str = "make it anew") -> None:
        """`way`: out, for whoever made it and keeps it beside the weights."""
        super().__init__(f"{reason}: {way}")
        self.reason = reason


class OtherVersion(NotAManifest):
    """A manifest that another llmgw wrote."""


@frozen
class Entry:
    size: int
    sha256: str


@frozen
class Manifest:
    files: Mapping[str, Entry] = field(converter=frozen_mapping, hash=False)
    """By name, relative, with `/`."""

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())


@frozen
class Found:
    """A file as it is."""

    size: int | None = None
    """`None`: it is not there, or not known."""
    sha256: str = ""
    """Empty: it was not read."""
    unread: str = ""
    """Why nothing is known of it: `cannot be read: Input/output error`."""


@frozen
class Comparison:
    differences: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    extra: int = 0
    """How many of the differences are files that the manifest does not name."""


def render_manifest(manifest: Manifest) -> str:
    files = {name: {"bytes": it.size, "sha256": it.sha256} for name, it in sorted(manifest.files.items())}
    return json.dumps({_VERSION_KEY: _VERSION, "files": files}, indent=1) + "\n"


def parse_manifest(text: str | bytes) -> Manifest:
    """Raises `NotAManifest`."""
    try:
        told = json.loads(text)
        version = told[_VERSION_KEY]
        files = {name: Entry(entry["bytes"], entry["sha256"]) for name, entry in told["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotAManifest("is no manifest of weights, or cut short", "make it anew, or remove it") from error
    if version != _VERSION:
        raise OtherVersion(f"is a manifest of version {version!r}, and this llmgw reads {_VERSION}", "upgrade llmgw")
    for name, entry in files.items():
        _check_entry(name, entry)
    return Manifest(files)


def _check_entry(name: str, entry: Entry) -> None:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise NotAManifest(f"names {shown(name)}, outside of the directory")
    if type(entry.size) is not int or entry.size < 0:
        raise NotAManifest(f"says nothing usable of the size of {shown(name)}")
    if type(entry.sha256) is not str or not _SHA256.fullmatch(entry.sha256):
        raise NotAManifest(f"says nothing usable of the digest of {shown(name)}")


def compare(manifest: Manifest, found: Mapping[str, Found]) -> Comparison:
    """In the order of names. What was not read is compared by its size only; what has no entry is extra."""
    differences, unread, extra = [], [], 0
    for name in sorted(manifest.files.keys() | found.keys()):
        here, entry = found.get(name, Found()), manifest.files.get(name)
        if here.unread:
            unread.append(f"{shown(name)} {here.unread}")
        elif entry is None:
            extra += 1
            differences.append(f"{shown(name)} is extra: the manifest does not name it")
        elif difference := difference_of(here, entry):
            differences.append(f"{shown(name)} {difference}")
    return Comparison(tuple(differences), tuple(unread), extra)


def difference_of(here: Found, entry: Entry) -> str:
    """What is wrong with a file, going on after its name; empty: nothing that is known."""
    if here.size is None:
        return "is missing"
    if here.size != entry.size:
        return f"has {here.size:,} bytes, expected {entry.size:,}"
    if here.sha256 and here.sha256 != entry.sha256:
        return f"has changed: its SHA-256 is {here.sha256[:16]}…, expected {entry.sha256[:16]}…"
    return ""

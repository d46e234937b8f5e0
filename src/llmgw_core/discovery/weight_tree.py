"""The files that a model's weights are made of, and their digests.

Rules: links to files are followed, since a hub's cache is made of them; a directory is entered once on each way down,
so that a link to above ends, and all ways together no oftener than a model has directories; what begins with a dot
belongs to tools, and is left out.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path

from attrs import define, field

from llmgw_core.discovery.gguf_parts import part_names
from llmgw_core.discovery.manifest import MANIFEST, Found, Manifest, parse_manifest
from llmgw_core.errors import LlmgwError

TICK_S = 0.5
_BLOCK_BYTES = 8 << 20
_MOST_FILES = 100_000
_MOST_DIRECTORIES = 10_000
"""As they are entered: directories that link to each other have ways without number."""
_MOST_MANIFEST_BYTES = 64 << 20


def manifest_beside(path: Path) -> Path:
    """Where the manifest of these weights lies by default."""
    return path / MANIFEST if path.is_dir() else path.with_name(f"{path.name}.{MANIFEST}")


def read_manifest(path: Path) -> Manifest:
    """Raises `OSError`, and `NotAManifest`."""
    with path.open("rb") as file:
        return parse_manifest(file.read(_MOST_MANIFEST_BYTES))


def files_of(path: Path) -> dict[str, Path]:
    """By name; of a split GGUF file all parts that its name counts, also those that are not there."""
    if not path.is_dir():
        os.stat(path)
        return {name: path.with_name(name) for name in part_names(path.name)}
    if (path / "snapshots").is_dir() and (path / "blobs").is_dir():
        raise LlmgwError(f"{path} is a hub's cache, not a model: name a directory below its snapshots")
    found: dict[str, Path] = {}
    _gather(path, "", frozenset(), found, count(1))
    return dict(sorted(found.items()))


def _gather(
    directory: Path, prefix: str, above: frozenset[tuple[int, int]], found: dict[str, Path], entered: Iterator[int]
) -> None:
    info = os.stat(directory)
    here = (info.st_dev, info.st_ino)
    if here in above:
        return
    if next(entered) > _MOST_DIRECTORIES:
        raise LlmgwError(f"more than {_MOST_DIRECTORIES:,} directories on the way to {directory}: it is no model's")
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.startswith(".") or entry.name.endswith(MANIFEST):
                continue
            if entry.is_dir():
                _gather(Path(entry.path), f"{prefix}{entry.name}/", above | {here}, found, entered)
            else:
                found[prefix + entry.name] = Path(entry.path)
            if len(found) > _MOST_FILES:
                raise LlmgwError(f"{directory} has more than {_MOST_FILES:,} files: it is no model's directory")


def look(path: Path) -> Found:
    """A file's size, links followed; no digest."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return Found()
    except OSError as error:
        return Found(unread=f"cannot be read: {error.strerror}")
    return Found(info.st_size) if stat.S_ISREG(info.st_mode) else Found(unread="is not a regular file")


@define(eq=False)
class Tally:
    """How far the reading is; told by several threads."""

    wanted_bytes: int
    files: int
    done_bytes: int = 0
    done_files: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(factory=threading.Lock)

    def add(self, count: int, files: int = 0) -> None:
        with self._lock:
            self.done_bytes += count
            self.done_files += files


def digest_files(files: Mapping[str, Path], jobs: int, tally: Tally, tick: Callable[[], None]) -> dict[str, Found]:
    """All of them, so many at a time; `tick` is called twice a second meanwhile."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = {name: pool.submit(_digest, path, tally) for name, path in files.items()}
            while wait(futures.values(), timeout=TICK_S).not_done:
                tick()
            return {name: future.result() for name, future in futures.items()}
        except BaseException:  # an interrupt: threads end with the block that they read
            tally.stopped = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _digest(path: Path, tally: Tally) -> Found:
    try:
        with path.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                return Found(unread="is not a regular file")
            digest = _digest_of(file.fileno(), tally)
            after = os.fstat(file.fileno())
    except FileNotFoundError:
        return Found()
    except OSError as error:
        return Found(unread=f"cannot be read: {error.strerror}")
    finally:
        tally.add(0, files=1)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return Found(unread="changed while it was read: wait until it is copied")
    return Found(before.st_size, digest)


def _digest_of(descriptor: int, tally: Tally) -> str:
    digest, block = hashlib.sha256(), bytearray(_BLOCK_BYTES)
    view = memoryview(block)
    while not tally.stopped and (count := os.readv(descriptor, [block])):
        digest.update(view[:count])
        tally.add(count)
    return digest.hexdigest()

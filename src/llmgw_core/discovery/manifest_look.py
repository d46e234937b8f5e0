"""The quick look at weights by a manifest that lies beside them: whether each file is there, with its size.

In: a path.  Out: nothing; raises `Unusable` for the first file that differs. Digests are never compared: this is asked
every half minute, of terabytes.
"""

from __future__ import annotations

from pathlib import Path

from llmgw_core.discovery.gguf_parts import part_names
from llmgw_core.discovery.manifest import MANIFEST, Entry, NotAManifest, difference_of
from llmgw_core.discovery.weight_file import Unusable
from llmgw_core.discovery.weight_tree import look, read_manifest


def check_by_manifest(path: Path, *, is_directory: bool) -> None:
    """A directory's; a file's own, or of its directory's what is said of that file and its other parts."""
    if is_directory:
        _check(path, path / MANIFEST, None)
        return
    own = path.with_name(f"{path.name}.{MANIFEST}")
    _check(path.parent, own if own.exists() else path.with_name(MANIFEST), frozenset(part_names(path.name)))


def _check(directory: Path, manifest: Path, only: frozenset[str] | None) -> None:
    wrong = [
        (name, difference)
        for name, entry in _entries(manifest).items()
        if only is None or name in only
        if (difference := _difference(directory / name, entry))
    ]
    if wrong:
        name, difference = wrong[0]
        more = f"; {len(wrong) - 1} more of its files differ" if wrong[1:] else ""
        raise Unusable(difference + more, f"{manifest.name}: {name}")


def _entries(manifest: Path) -> dict[str, Entry]:
    try:
        return dict(read_manifest(manifest).files)
    except FileNotFoundError:
        return {}
    except NotAManifest as error:
        raise Unusable(str(error), manifest.name) from error
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}", manifest.name) from error


def _difference(path: Path, entry: Entry) -> str:
    here = look(path)
    return here.unread or difference_of(here, entry)

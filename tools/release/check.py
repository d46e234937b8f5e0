"""Reads every shared library in a release's file: `python -m tools.release.check FILE…`.

A file says by its name which platform it is for. Wheels inside it are read too. Exit code 1, with a line for each
library that would not run there.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

from attrs import frozen
from tools.release.library import Library, find_faults, read_library
from tools.release.target import TARGETS, Target

# Stubs that pex carries for Windows; nothing runs or loads them.
_NOT_OURS = (".bootstrap/pex/windows/",)


@frozen
class Checked:
    """How many libraries were read, and what is wrong."""

    libraries: int
    faults: tuple[str, ...]


def target_of(name: str) -> Target | None:
    """The platform in a file's name."""
    return next((target for target in TARGETS if name.endswith(target.name)), None)


def check_file(path: Path, target: Target) -> Checked:
    found = dict(_libraries(path))
    faults = [
        f"{path.name}: {name}: {fault}"
        for name, library in found.items()
        for fault in find_faults(library, target, _beside(name, found))
    ]
    if not found:
        faults.append(f"{path.name}: no library was found in it, and it must have some")
    return Checked(len(found), tuple(faults))


def _beside(name: str, found: Mapping[str, Library]) -> set[str]:
    wheel = name.partition("!")[0]
    return {other.rpartition("/")[2] for other in found if other.startswith(f"{wheel}!")}


def _libraries(path: Path) -> Iterator[tuple[str, Library]]:
    with zipfile.ZipFile(path) as archive:
        yield from _in_archive(archive, path.name if path.suffix == ".whl" else "")


def _in_archive(archive: zipfile.ZipFile, wheel: str) -> Iterator[tuple[str, Library]]:
    for info in archive.infolist():
        if info.is_dir() or info.filename.startswith(_NOT_OURS):
            continue
        data = archive.read(info)
        if info.filename.endswith(".whl"):
            with zipfile.ZipFile(BytesIO(data)) as inner:
                yield from _in_archive(inner, info.filename.rpartition("/")[2])
        elif library := read_library(data):
            yield f"{wheel}!{info.filename}" if wheel else info.filename, library


def main(paths: list[str]) -> int:
    faults: list[str] = []
    for path in map(Path, paths):
        target = target_of(path.name)
        if target is None:
            faults.append(f"{path.name}: its name ends with none of {', '.join(each.name for each in TARGETS)}")
            continue
        checked = check_file(path, target)
        faults += checked.faults
        if not checked.faults:
            print(f"{path.name}: {checked.libraries} libraries, all for {target.name}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

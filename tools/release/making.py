"""Everything that a release is made of, in a directory of its own."""

from __future__ import annotations

import shutil
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from tools.release.build import build, mark
from tools.release.bundle import bundle, download
from tools.release.check import check_file
from tools.release.git import export
from tools.release.lock import LOCK, unlocked
from tools.release.notes import render_notes
from tools.release.sbom import read_wheels, render_sbom
from tools.release.tag import Refused, Release
from tools.release.target import TARGETS

SUMS = "SHA256SUMS"
NOTES = "RELEASE-NOTES.md"


def make(release: Release, root: Path, work: Path) -> Path:
    """The directory with everything that is released."""
    source, made = work / "source", work / "made"
    made.mkdir()
    _say(f"{release.title}: exporting {release.commit[:8]}")
    export(root, release.commit, source)
    mark(release, source)
    for project in release.projects:
        _say(f"building {project.name} {project.version}")
        build(release, project, source, made)
    if release.whole:
        _bundle_all(release, source, work, made)
    (made / NOTES).write_text(render_notes(release, source), encoding="utf-8")
    (made / SUMS).write_text("".join(f"{_digest(each)}  {each.name}\n" for each in _files(made)), encoding="utf-8")
    return made


def _bundle_all(release: Release, source: Path, work: Path, made: Path) -> None:
    lock = source / LOCK
    missing = unlocked(release.projects, lock.read_text(encoding="utf-8"))
    if missing:
        raise Refused(f"{LOCK} does not meet {', '.join(missing)}: make release-lock, commit, and tag that commit")
    houses = [_own_wheels(made, work / "own")]
    for target in TARGETS:
        house = work / target.name
        _say(f"bundling {target.name}")
        download(lock, target, house)
        file = made / f"{release.title}-{target.name}"
        bundle(release, target, (houses[0], house), file, work)
        checked = check_file(file, target)
        if checked.faults:
            raise Refused("\n".join(("a bundled library would not run on a node:", *checked.faults)))
        _say(f"{checked.libraries} libraries read: all for {target.name}")
        houses.append(house)
    files = {file.name: _digest(file) for file in _files(made)}
    tools = {"pex": version("pex")}
    text = render_sbom(release, read_wheels(houses), files, tools)
    (made / f"{release.title}.cdx.json").write_text(text, encoding="utf-8")


def _own_wheels(made: Path, house: Path) -> Path:
    house.mkdir()
    for wheel in made.glob("*.whl"):
        shutil.copy(wheel, house)
    return house


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def _say(line: str) -> None:
    print(line, flush=True)

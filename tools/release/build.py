"""sdists and wheels of an exported commit, the same bytes at every run."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.release.bundle import run
from tools.release.tag import Project, Release

BUILT_FROM = "built-from.txt"


def mark(release: Release, source: Path) -> None:
    """Write into each package which tag and commit it is built from; `--version` reads that."""
    for project in release.projects:
        package = source / project.directory / "src" / project.package
        (package / BUILT_FROM).write_text(f"{release.tag} {release.commit}\n", encoding="utf-8")


def build(release: Release, project: Project, source: Path, target: Path, *only: str) -> None:
    """An sdist, and the wheel that is built from it: whoever builds the sdist gets the same. `only`: `--wheel`."""
    words = (sys.executable, "-m", "build", "--no-isolation", *only, "--outdir", str(target))
    run((*words, str(source / project.directory)), SOURCE_DATE_EPOCH=str(release.committed_s))

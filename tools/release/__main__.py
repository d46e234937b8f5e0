"""`python -m tools.release`: a release from the tag of this checkout, into `dist/`. Run by `make release`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tools.release.git import read_projects, read_tree
from tools.release.tag import Refused, decide


def main(root: Path) -> int:
    try:
        release = decide(read_tree(root), read_projects(root))
        from tools.release.making import make  # a refusal needs none of its tools

        with tempfile.TemporaryDirectory(prefix="llmgw-release-") as work:
            place = _put(make(release, root, Path(work)), root / "dist" / release.title)
    except Refused as why:
        print(f"llmgw release: {why}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"llmgw release: {error.strerror}: {error.filename or root}: nothing was released", file=sys.stderr)
        return 2
    for file in sorted(place.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file.relative_to(root)}")
    return 0


def _put(made: Path, place: Path) -> Path:
    """What is whole comes to its place in one step, over what an earlier run left there."""
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as new:
        whole = Path(shutil.copytree(made, Path(new, place.name)))
        if place.exists():
            place.rename(Path(new, "old"))
        whole.rename(place)
    return place


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))

"""One file for a platform: wheels, bundled by pex, under our own start.

pex makes an archive that can make a virtual environment of itself. By itself it would do so in the cache of whoever
runs it, or in a new directory under /tmp at each start. Our start (`head.sh`) chooses a lasting directory that nobody
else can write to, or says that there is none, and from then on runs what was unpacked without pex.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from tools.release.tag import Refused, Release
from tools.release.target import PYTHONS, Python, Target

HEAD = Path(__file__).with_name("head.sh")
_MOST_SAID = 4000
_DIGEST_CHARACTERS = 12


class CannotBundle(Refused):
    """A tool failed."""


def download(lock: Path, target: Target, house: Path, pythons: Sequence[Python] = PYTHONS) -> None:
    """The locked wheels for this platform and each of these Pythons, each by its digest."""
    for python in pythons:
        abis = (f"cp{python[0]}{python[1]}", "abi3", "none")
        words = ["--implementation", "cp", "--python-version", f"{python[0]}.{python[1]}"]
        words += [word for abi in abis for word in ("--abi", abi)]
        words += [word for platform in target.platforms for word in ("--platform", platform)]
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        choice = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", lock)
        run((*pip, *choice, *words, "--dest", house))


def bundle(
    release: Release,
    target: Target,
    houses: Sequence[Path],
    file: Path,
    work: Path,
    pythons: Sequence[Python] = PYTHONS,
) -> None:
    """Write the file, from the wheels in the directories `houses` alone."""
    platforms: list[str | Path] = []
    for python in pythons:
        described = work / f"{target.name}-{python[0]}.{python[1]}.json"
        described.write_text(json.dumps(target.complete_platform(python)), encoding="utf-8")
        platforms += ["--complete-platform", described]
    wheels: list[str | Path] = [word for house in houses for word in ("--pre-resolved-dists", house)]
    made = work / f"{file.name}.pex"
    pex = (sys.executable, "-m", "pex", "--no-pypi", *wheels, *platforms, "--output-file", made)
    # No --interpreter-constraint: with it, pex builds for this machine's own Pythons too. head.sh looks at the version.
    shape = ("--include-tools", "--no-pre-install-wheels", "--no-compile", "--no-rc")
    projects = [f"{project.name}=={project.version}" for project in release.projects]
    root = ("--pex-root", work / "pex", "--tmpdir", work)
    run((*pex, *shape, *root, *projects), SOURCE_DATE_EPOCH=str(release.committed_s))
    archive = made.read_bytes()
    facts = {
        "TITLE": release.title,
        "TARGET": target.name,
        "TAG": release.tag,
        "COMMIT": release.commit[:8],
        "DIGEST": sha256(archive).hexdigest()[:_DIGEST_CHARACTERS],
    }
    file.write_bytes(with_head(archive, HEAD.read_text(encoding="utf-8"), facts))
    file.chmod(0o755)


def with_head(archive: bytes, head: str, facts: dict[str, str]) -> bytes:
    """The archive with our start before it; what is in it stays, and so do its times and modes."""
    for name, value in facts.items():
        head = head.replace(f"@{name}@", value)
    whole = BytesIO(head.encode())
    with zipfile.ZipFile(BytesIO(archive)) as old, zipfile.ZipFile(whole, "a") as new:
        for info in old.infolist():
            packed = info.filename.endswith(".whl")
            new.writestr(info, old.read(info), zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED)
    return whole.getvalue()


def run(words: Sequence[str | Path], **environment: str) -> None:
    """Run a tool; its output is shown when it fails. Raises `CannotBundle`."""
    ended = subprocess.run(
        [str(word) for word in words], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if ended.returncode:
        said = (ended.stdout + ended.stderr).strip()[:_MOST_SAID]
        raise CannotBundle(f"{' '.join(map(str, words[:4]))} … failed:\n{said}")

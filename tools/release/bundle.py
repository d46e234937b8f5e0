"""One file for a platform: wheels, bundled by pex, under our own start.

pex makes an archive that unpacks itself into a virtual environment. The shell script that pex puts before it would use
the cache of whoever runs it, or a new directory under /tmp at each start; ours (`head.sh`) uses a lasting directory that
nobody else can write to, or says that there is none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.release.tag import Release
from tools.release.target import PYTHONS, Target

HEAD = Path(__file__).with_name("head.sh")
_UNPACKED = re.compile(rb'^INSTALLED_PEX="\$\{PEX_ROOT\}/(venvs/[0-9a-f/]+)"$', re.MULTILINE)
_MOST_SAID = 4000
_ARCHIVE = b"PK\x03\x04"


class CannotBundle(Exception):
    """pex failed, or made another file than the one that we know."""


def download(lock: Path, target: Target, house: Path) -> None:
    """The locked wheels for this platform and every Python, each by its digest."""
    for python in PYTHONS:
        abis = (f"cp{python[0]}{python[1]}", "abi3", "none")
        words = ["--implementation", "cp", "--python-version", f"{python[0]}.{python[1]}"]
        words += [word for abi in abis for word in ("--abi", abi)]
        words += [word for platform in target.platforms for word in ("--platform", platform)]
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        choice = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", lock)
        run((*pip, *choice, *words, "--dest", house))


def bundle(release: Release, target: Target, houses: Sequence[Path], file: Path, work: Path) -> None:
    """Write the file, from the wheels in the directories `houses` alone."""
    platforms: list[str | Path] = []
    for python in PYTHONS:
        described = work / f"{target.name}-{python[0]}.{python[1]}.json"
        described.write_text(json.dumps(target.complete_platform(python)), encoding="utf-8")
        platforms += ["--complete-platform", described]
    wheels: list[str | Path] = [word for house in houses for word in ("--pre-resolved-dists", house)]
    made = work / f"{file.name}.pex"
    pex = (sys.executable, "-m", "pex", "--no-pypi", *wheels, *platforms, "--output-file", made)
    shape = ("--venv", "--venv-site-packages-copies", "--no-pre-install-wheels", "--no-compile", "--sh-boot")
    # No --interpreter-constraint: with it, pex builds for this machine's own Pythons too. head.sh looks at the version.
    start = ("--no-emit-warnings", "--no-rc")
    projects = [f"{project.name}=={project.version}" for project in release.projects]
    root = ("--pex-root", work / "pex", "--tmpdir", work)
    run((*pex, *shape, *start, *root, *projects), SOURCE_DATE_EPOCH=str(release.committed_s))
    file.write_bytes(with_head(made.read_bytes(), HEAD.read_text(encoding="utf-8"), _facts(release, target)))
    file.chmod(0o755)


def _facts(release: Release, target: Target) -> dict[str, str]:
    return {
        "VERSION": release.version,
        "TARGET": target.name,
        "TAG": release.tag,
        "COMMIT": release.commit[:8],
    }


def with_head(made: bytes, head: str, facts: dict[str, str]) -> bytes:
    """The archive with our start in place of pex's; as long, so that every place in the archive stays as it is."""
    begins = made.find(_ARCHIVE)
    found = _UNPACKED.findall(made[: max(begins, 0)])
    if len(found) != 1:
        raise CannotBundle("pex's start does not say where it unpacks: this release of pex is another than we know")
    for name, value in {**facts, "UNPACKED": found[0].decode()}.items():
        head = head.replace(f"@{name}@", value)
    written = head.encode()
    if len(written) > begins:
        raise CannotBundle(f"head.sh has {len(written)} bytes, pex's start only {begins}")
    return written + b"\n" * (begins - len(written)) + made[begins:]


def run(words: Sequence[str | Path], **environment: str) -> None:
    """Run a tool; its output is shown when it fails. Raises `CannotBundle`."""
    ended = subprocess.run(
        [str(word) for word in words], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if ended.returncode:
        said = (ended.stdout + ended.stderr).strip()[:_MOST_SAID]
        raise CannotBundle(f"{' '.join(map(str, words[:4]))} … failed:\n{said}")

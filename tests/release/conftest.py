"""A file `llmgw` for this machine, made of this working tree as `make release` makes it, for this Python alone."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.release.build import build, mark
from tools.release.bundle import CannotBundle, bundle, download
from tools.release.git import read_projects
from tools.release.lock import LOCK
from tools.release.tag import Release
from tools.release.target import TARGETS, Target

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "1a2b3c4d" * 5
HERE = sys.version_info[:2]


def this_machine() -> Target:
    import platform

    found = [each for each in TARGETS if (each.system, each.machine) == (platform.system(), platform.machine())]
    if not found:
        pytest.skip(f"no file is released for {platform.system()} {platform.machine()}")
    return found[0]


@pytest.fixture(scope="session")
def release() -> Release:
    projects = read_projects(ROOT)
    return Release(projects["llmgw-core"].tag, COMMIT, 1_700_000_000, tuple(projects.values()))


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked wheels of others for this machine."""
    house = tmp_path_factory.mktemp("house")
    try:
        download(ROOT / LOCK, this_machine(), house, (HERE,))
    except CannotBundle as error:
        pytest.skip(f"the locked wheels cannot be had: {str(error)[-300:]}")
    return house


@pytest.fixture(scope="session")
def own_wheels(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("own")
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (name.startswith(("src/", "plugins/")) or "/" not in name) and (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    mark(release, source)
    with ThreadPoolExecutor(2) as pool:
        built = [pool.submit(build, release, project, source, made, "--wheel") for project in release.projects]
    for each in built:
        each.result()
    return made


@pytest.fixture(scope="session")
def file(release: Release, house: Path, own_wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("file")
    file = place / f"{release.title}-{this_machine().name}"
    bundle(release, this_machine(), (own_wheels, house), file, tmp_path_factory.mktemp("work"), (HERE,))
    return file

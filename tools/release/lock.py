"""Which wheels are bundled: `make release-lock` writes requirements-bundled.txt.

Every dependency of the core and the plugins, resolved once for all platforms and Pythons, with the digests of all its
wheels and no address of a registry.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.release.git import read_projects
from tools.release.tag import Project

LOCK = "requirements-bundled.txt"
TOOLS = "requirements-release"


def wanted(projects: Iterable[Project]) -> tuple[str, ...]:
    """What must be locked: what the projects need, but for each other."""
    found = {line for project in projects for line in project.dependencies}
    return tuple(sorted(line for line in found if not Requirement(line).name.startswith("llmgw-")))


def unlocked(projects: Iterable[Project], lock: str) -> tuple[str, ...]:
    """The requirements that the lock does not meet."""
    pins = dict(line.split(" ", 1)[0].split("==", 1) for line in lock.splitlines() if "==" in line and line[0] != " ")
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    return tuple(
        line
        for line in wanted(projects)
        if not Requirement(line).specifier.contains(versions.get(canonicalize_name(Requirement(line).name), ""))
    )


def main(root: Path) -> int:
    uv = ("uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes", "--upgrade")
    quiet = ("--quiet", "--no-annotate", "--custom-compile-command", "make release-lock")
    lines = "\n".join(wanted(read_projects(root).values()))
    bundled = (*uv, *quiet, "--only-binary", ":all:", "-", "--output-file", str(root / LOCK))
    subprocess.run(bundled, input=lines, text=True, check=True)
    tools = (*uv, *quiet, str(root / f"{TOOLS}.in"), "--output-file", str(root / f"{TOOLS}.txt"))
    subprocess.run(tools, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))

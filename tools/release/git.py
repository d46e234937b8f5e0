"""What git says of this checkout, and an export of its commit."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

from tools.release.tag import Project, Refused, Tree

ENGINES = ("vllm", "sglang", "llamacpp", "sim")
DIRECTORIES = (".", *(f"plugins/{engine}" for engine in ENGINES))


def read_tree(root: Path) -> Tree:
    """Raises `Refused` where there is no commit."""
    commit = _git(root, "rev-parse", "HEAD").strip()
    changed = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    return Tree(
        commit,
        int(_git(root, "show", "--no-patch", "--format=%ct", "HEAD")),
        tuple(_git(root, "tag", "--points-at", "HEAD").split()),
        tuple(line[3:] for line in changed.split("\0") if line),
    )


def read_projects(root: Path) -> dict[str, Project]:
    """All distributions by name, the core first."""
    projects = [_read_project(root, directory) for directory in DIRECTORIES]
    return {project.name: project for project in projects}


def _read_project(root: Path, directory: str) -> Project:
    said = tomllib.loads((root / directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Project(directory, said["name"], said["version"], tuple(said.get("dependencies", ())))


def export(root: Path, commit: str, target: Path) -> None:
    """The files of the commit, and no others."""
    target.mkdir(parents=True)
    archive = target.with_suffix(".tar")
    _git(root, "archive", "--format=tar", f"--output={archive}", commit)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", target], check=True)
    archive.unlink()


def _git(root: Path, *words: str) -> str:
    ended = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
    if ended.returncode:
        raise Refused(f"git {words[0]} failed: {' '.join(ended.stderr.split())}: a release is made in a git checkout")
    return ended.stdout

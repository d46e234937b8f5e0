"""`make release` on a clone: only a clean commit under its tag is released, and a refusal is one line."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.release.conftest import ROOT
from tools.release.__main__ import _put

TIMEOUT_S = 60
ME = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@y", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@y"}


def git(clone: Path, *words: str) -> None:
    environment = {**os.environ, **ME, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True, timeout=TIMEOUT_S, env=environment)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with this tree's pyprojects and release tools, and one commit."""
    clone = tmp_path / "clone"
    for name in ("tools/release", "plugins"):
        (clone / name).mkdir(parents=True)
    for path in [*ROOT.glob("tools/release/*.*"), *ROOT.glob("plugins/*/pyproject.toml"), ROOT / "pyproject.toml"]:
        copy = clone / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (clone / ".gitignore").write_text("__pycache__/\n")
    git(clone, "init", "--quiet")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "all")
    return clone


def refusal(clone: Path, **environment: str) -> str:
    words = (sys.executable, "-m", "tools.release")
    known = {**os.environ, **environment}
    ended = subprocess.run(words, cwd=clone, capture_output=True, text=True, timeout=TIMEOUT_S, env=known)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not (clone / "dist").exists()
    (line,) = ended.stderr.splitlines()
    return line


def test_an_untagged_commit_is_refused_and_told_which_tag_it_wants(clone: Path) -> None:
    assert refusal(clone).endswith("has no release's tag: git tag -a v0.1.0 -m 'llmgw 0.1.0'")


def test_a_changed_file_is_refused_by_its_name(clone: Path) -> None:
    git(clone, "tag", "v0.1.0")
    (clone / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + "\n")
    assert ": pyproject.toml; commit or remove what differs" in refusal(clone)


def test_a_file_that_git_does_not_know_is_refused_by_its_name(clone: Path) -> None:
    git(clone, "tag", "v0.1.0")
    (clone / "tools" / "a note").write_text("")
    assert ": tools/a note; commit or remove what differs" in refusal(clone)


def test_a_tag_of_another_version_is_refused(clone: Path) -> None:
    git(clone, "tag", "-a", "-m", "x", "v0.9.0")
    assert "tag v0.9.0 is not the version 0.1.0 of pyproject.toml" in refusal(clone)


def test_a_tag_of_an_earlier_commit_is_none_of_this_one(clone: Path) -> None:
    git(clone, "tag", "v0.1.0")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "later")
    assert "has no release's tag" in refusal(clone)


def test_without_git_the_refusal_names_it(clone: Path) -> None:
    assert refusal(clone, PATH="/nonexistent").endswith("No such file or directory: git: nothing was released")


def test_a_disk_that_fills_up_leaves_what_an_earlier_run_released(tmp_path: Path) -> None:
    made, place = tmp_path / "made", tmp_path / "dist" / "llmgw-0.1.0"
    for directory, text in ((made, "new"), (place, "old")):
        directory.mkdir(parents=True)
        (directory / "SHA256SUMS").write_text(text)
    with (
        patch("shutil.copytree", side_effect=OSError(28, "No space left on device")),
        pytest.raises(OSError, match="28"),
    ):
        _put(made, place)
    assert [path.name for path in place.parent.iterdir()] == ["llmgw-0.1.0"]
    assert (place / "SHA256SUMS").read_text() == "old"
    assert _put(made, place) == place
    assert [path.name for path in place.parent.iterdir()] == ["llmgw-0.1.0"]
    assert (place / "SHA256SUMS").read_text() == "new"


def test_a_tree_without_git_is_refused(clone: Path) -> None:
    (clone / ".git").rename(clone.parent / "git")
    assert "a release is made in a git checkout" in refusal(clone)

"""What the pages on releases say is so, and a workflow does what a maintainer does."""

import re
from pathlib import Path

import pytest
import yaml
from tools.release.git import read_projects
from tools.release.lock import LOCK, unlocked
from tools.release.target import TARGETS

from llmgw_core.plugin_directory import DIRECTORY

ROOT = Path(__file__).resolve().parents[2]
USING = (ROOT / "docs" / "how-to-use-a-release.md").read_text(encoding="utf-8")
MAKING = (ROOT / "docs" / "how-to-release.md").read_text(encoding="utf-8")
HEAD = (ROOT / "tools" / "release" / "head.sh").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LOCKS = (LOCK, "requirements-release.in", "requirements-release.txt", "requirements-dev.txt")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_environment_of_the_file_is_that_of_the_page() -> None:
    read = set(re.findall(r"LLMGW_[A-Z]+", HEAD)) | {"LLMGW_PLUGINS"}
    assert set(re.findall(r"LLMGW_[A-Z]+", USING)) == read


def test_a_python_is_chosen_only_where_the_file_unpacks_itself() -> None:
    assert HEAD.count("\n    choose_python\n    unpack ") == 1  # within the branch where nothing is unpacked
    assert HEAD.count("choose_python") == 2  # there, and its definition
    assert "`LLMGW_PYTHON` counts only when the release unpacks itself." in USING


def test_the_pages_name_every_platform_and_the_directory_of_plugins() -> None:
    for target in TARGETS:
        assert f"-{target.name}" in MAKING
        assert target.name in USING
    assert f"`{DIRECTORY}` beside the file" in USING


def test_the_lock_meets_what_the_projects_need() -> None:
    lock = (ROOT / LOCK).read_text(encoding="utf-8")
    assert unlocked(read_projects(ROOT).values(), lock) == ()
    assert unlocked(read_projects(ROOT).values(), lock.replace("trio==", "trio-x==")) != ()


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_names_a_registry(name: str) -> None:
    assert not re.search(r"https?:|--(extra-)?index-url|--find-links", (ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_a_maintainer_runs_and_pins_what_it_uses(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", each) for each in used)
    ran = [step["run"] for step in job["steps"] if "run" in step]
    assert ran[0] == ".ci/run"
    for target in re.findall(r"make ([\w-]+)", "\n".join(ran)):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    assert "http" not in text


def test_the_release_workflow_starts_on_the_tags_of_the_page() -> None:
    tags = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))[True]["push"]["tags"]
    assert tags == ["v*", "engine-*-v*"]
    assert {"| `v0.1.0` |", "| `engine-vllm-v0.2.0` |"} <= {
        line[: line.find("|", 2) + 1] for line in MAKING.splitlines()
    }

"""What may be released, and what the refusal says."""

from collections.abc import Mapping

import pytest
from attrs import evolve
from tools.release.tag import Project, Refused, Tree, decide

CORE = Project(".", "llmgw-core", "0.1.0")
VLLM = Project("plugins/vllm", "llmgw-engine-vllm", "0.3.0", ("llmgw-core>=0.1,<0.2",))
SIM = Project("plugins/sim", "llmgw-engine-sim", "0.1.0", ("llmgw-core>=0.1,<0.2", "h11>=0.14"))
PROJECTS = {each.name: each for each in (CORE, VLLM, SIM)}
TREE = Tree("1a2b3c4d5e6f", 1_700_000_000, ("v0.1.0",), ())


def refusal(tree: Tree, projects: Mapping[str, Project] = PROJECTS) -> str:
    with pytest.raises(Refused) as refused:
        decide(tree, projects)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_cores_tag_releases_the_core_and_every_plugin_with_the_version_that_it_has() -> None:
    release = decide(TREE, PROJECTS)
    assert (release.title, release.tag, release.projects) == ("llmgw-0.1.0", "v0.1.0", (CORE, VLLM, SIM))
    assert release.whole


def test_a_plugins_tag_releases_that_plugin_alone() -> None:
    release = decide(evolve(TREE, tags=("engine-vllm-v0.3.0",)), PROJECTS)
    assert (release.title, release.projects, release.whole) == ("llmgw-engine-vllm-0.3.0", (VLLM,), False)


def test_under_both_tags_the_cores_counts() -> None:
    assert decide(evolve(TREE, tags=("engine-vllm-v0.3.0", "v0.1.0")), PROJECTS).whole


def test_other_tags_are_nobodys_business() -> None:
    assert decide(evolve(TREE, tags=("latest", "v0.1.0", "vacation")), PROJECTS).tag == "v0.1.0"


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ((), "commit 1a2b3c4d has no release's tag: git tag -a v0.1.0 -m 'llmgw 0.1.0'"),
        (("latest",), "commit 1a2b3c4d has no release's tag: git tag -a v0.1.0 -m 'llmgw 0.1.0'"),
        (
            ("v0.2.0",),
            "tag v0.2.0 is not the version 0.1.0 of pyproject.toml: "
            "set the version, commit, and tag that commit v0.1.0",
        ),
        (
            ("engine-vllm-v0.4.0",),
            "tag engine-vllm-v0.4.0 is not the version 0.3.0 of plugins/vllm/pyproject.toml: "
            "set the version, commit, and tag that commit engine-vllm-v0.3.0",
        ),
        (
            ("engine-sim-v0.1.0", "engine-vllm-v0.3.0"),
            "commit 1a2b3c4d has the tags engine-vllm-v0.3.0, engine-sim-v0.1.0: one release at a time",
        ),
    ],
)
def test_without_the_right_tag_nothing_is_released(tags: tuple[str, ...], said: str) -> None:
    assert refusal(evolve(TREE, tags=tags)) == said


def test_what_differs_from_the_commit_is_named() -> None:
    assert refusal(evolve(TREE, changed=("Makefile",))) == (
        "not as in commit 1a2b3c4d: Makefile; commit or remove what differs, and tag that commit"
    )
    assert refusal(evolve(TREE, changed=("a", "b", "c", "d"))).startswith(
        "not as in commit 1a2b3c4d: 4 files (a, b, c, …); commit"
    )


def test_a_plugin_that_needs_another_core_is_not_released_with_this_one() -> None:
    core = evolve(CORE, version="0.2.0")
    projects = {**PROJECTS, core.name: core}
    assert refusal(evolve(TREE, tags=("v0.2.0",)), projects) == (
        "plugins/vllm/pyproject.toml needs llmgw-core<0.2,>=0.1, and the core is 0.2.0: "
        "change one of them, commit, and tag that commit"
    )


def test_a_wrong_tag_beside_the_right_one_is_refused() -> None:
    with pytest.raises(Refused, match="has the tag v9 too, which is no version of it: git tag -d v9"):
        decide(evolve(TREE, tags=("v0.1.0", "v9")), PROJECTS)

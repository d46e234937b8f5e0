"""The release notes: one page of what towncrier drafts for each distribution."""

from pathlib import Path

from tests.release.conftest import ROOT
from tools.release.notes import part_of_notes, render_notes
from tools.release.tag import Project, Release

SIM = Project("plugins/sim", "llmgw-engine-sim", "0.1.0")


def test_a_draft_stands_under_its_distribution() -> None:
    draft = "# llmgw-engine-sim 0.1.0 (2026-01-01)\n\n## Added\n\n- A server.\n\n\n"
    assert part_of_notes(SIM, draft) == "## llmgw-engine-sim 0.1.0\n\n### Added\n\n- A server."


def test_the_fragments_of_each_distribution_are_told_and_none_is_of_an_unknown_kind(tmp_path: Path) -> None:
    release = Release("engine-sim-v0.1.0", "1a2b3c4d", 1_700_000_000, (SIM,))
    for name, text in (("+one.added.md", "A server."), ("+two.fixed.md", "A leak."), ("+three.removed.md", "A flag.")):
        fragments = tmp_path / SIM.directory / "newsfragments"
        fragments.mkdir(parents=True, exist_ok=True)
        (fragments / name).write_text(f"{text}\n")
    (tmp_path / SIM.directory / "pyproject.toml").write_text((ROOT / SIM.directory / "pyproject.toml").read_text())
    assert render_notes(release, tmp_path) == (
        "# llmgw-engine-sim 0.1.0\n\nTag engine-sim-v0.1.0, commit 1a2b3c4d, 2023-11-14.\n\n"
        "## llmgw-engine-sim 0.1.0\n\n### Added\n\n- A server.\n\n### Fixed\n\n- A leak.\n\n"
        "### Removed\n\n- A flag.\n"
    )


def test_every_fragment_that_is_here_has_a_kind_that_is_told() -> None:
    here = [*ROOT.glob("newsfragments/*.md"), *ROOT.glob("plugins/*/newsfragments/*.md")]
    kinds = ("added", "changed", "fixed", "removed")
    assert [path.name for path in here if path.name.split(".")[-2] not in kinds] == []

"""The release notes: what towncrier makes of the fragments of the core and of each plugin."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.release.tag import Project, Release


def render_notes(release: Release, source: Path) -> str:
    """One page, in Markdown."""
    date = datetime.fromtimestamp(release.committed_s, UTC).date().isoformat()
    said = f"Tag {release.tag}, commit {release.commit}, {date}."
    parts = [part_of_notes(project, _draft(project, source, date)) for project in release.projects]
    return "\n\n".join((f"# {' '.join(release.title.rsplit('-', 1))}", said, *parts)) + "\n"


def _draft(project: Project, source: Path, date: str) -> str:
    words = ("--draft", "--version", project.version, "--date", date, "--dir", str(source / project.directory))
    ended = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", *words], capture_output=True, text=True, check=True
    )
    return ended.stdout


def part_of_notes(project: Project, draft: str) -> str:
    """A project's draft: its title as ours are, its own headings a level deeper."""
    _, *lines = draft.strip().splitlines()
    body = "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)
    return f"## {project.name} {project.version}\n\n{body.strip()}"

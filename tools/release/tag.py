"""What may be released: one commit, clean, under a tag that says the version.

In: what git and the projects say.  Out: a `Release`, or `Refused` with the way out.  Pure.
The tag `v0.1.0` releases everything, and equals the core's version; plugins go along with the versions that they have.
The tag `engine-vllm-v0.2.0` releases one plugin's wheel and sdist, and equals that plugin's version.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from packaging.requirements import Requirement

CORE = "llmgw-core"
_SHOWN = 3


class Refused(Exception):
    """Why nothing is released; `str()` is one line with the way out."""


@frozen
class Project:
    """One distribution, as its pyproject says."""

    directory: str
    name: str
    version: str
    dependencies: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")

    @property
    def tag(self) -> str:
        """The tag under which this project is released."""
        if self.name == CORE:
            return f"v{self.version}"
        return f"{self.name.removeprefix('llmgw-')}-v{self.version}"


@frozen
class Tree:
    """What git says of the checkout."""

    commit: str
    committed_s: int
    tags: tuple[str, ...]
    changed: tuple[str, ...]
    """Files that differ from the commit, and files that git neither has nor ignores."""


@frozen
class Release:
    tag: str
    commit: str
    committed_s: int
    projects: tuple[Project, ...]

    @property
    def whole(self) -> bool:
        return any(project.name == CORE for project in self.projects)

    @property
    def version(self) -> str:
        return self.projects[0].version

    @property
    def title(self) -> str:
        """What the release and its directory are called: `llmgw-0.1.0`, `llmgw-engine-vllm-0.2.0`."""
        name = "llmgw" if self.whole else self.projects[0].name
        return f"{name}-{self.version}"


def decide(tree: Tree, projects: Mapping[str, Project]) -> Release:
    """What to release from this tree; raises `Refused`."""
    short = tree.commit[:8]
    core = projects[CORE]
    if tree.changed:
        raise Refused(
            f"not as in commit {short}: {_files(tree.changed)}; commit or remove what differs, and tag that commit"
        )
    fitting = [project for project in projects.values() if project.tag in tree.tags]
    if not fitting:
        raise Refused(_why_no_tag(tree, core, projects))
    strange = [tag for tag in tree.tags if _is_ours(tag, projects) and tag not in {each.tag for each in fitting}]
    if strange:
        raise Refused(
            f"commit {short} has the tag {strange[0]} too, which is no version of it: git tag -d {strange[0]}"
        )
    if core in fitting:
        _check_plugins(core, projects)
        rest = tuple(project for project in projects.values() if project is not core)
        return Release(core.tag, tree.commit, tree.committed_s, (core, *rest))
    if len(fitting) > 1:
        raise Refused(f"commit {short} has the tags {', '.join(each.tag for each in fitting)}: one release at a time")
    _check_plugins(core, {fitting[0].name: fitting[0]})
    return Release(fitting[0].tag, tree.commit, tree.committed_s, (fitting[0],))


def _files(changed: tuple[str, ...]) -> str:
    shown = ", ".join(changed[:_SHOWN]) + (", …" if len(changed) > _SHOWN else "")
    return shown if len(changed) == 1 else f"{len(changed)} files ({shown})"


def _why_no_tag(tree: Tree, core: Project, projects: Mapping[str, Project]) -> str:
    wrong = [tag for tag in tree.tags if _is_ours(tag, projects)]
    if wrong:
        project = _project_of(wrong[0], projects)
        where = f"{project.directory}/pyproject.toml".removeprefix("./")
        return (
            f"tag {wrong[0]} is not the version {project.version} of {where}: "
            f"set the version, commit, and tag that commit {project.tag}"
        )
    return f"commit {tree.commit[:8]} has no release's tag: git tag -a {core.tag} -m 'llmgw {core.version}'"


def _is_ours(tag: str, projects: Mapping[str, Project]) -> bool:
    prefixes = [project.tag.removesuffix(project.version) for project in projects.values()]
    return any(tag.startswith(prefix) and tag.removeprefix(prefix)[:1].isdigit() for prefix in prefixes)


def _project_of(tag: str, projects: Mapping[str, Project]) -> Project:
    return next(each for each in projects.values() if tag.startswith(each.tag.removesuffix(each.version)))


def _check_plugins(core: Project, projects: Mapping[str, Project]) -> None:
    for project in projects.values():
        for requirement in map(Requirement, project.dependencies):
            if requirement.name == CORE and not requirement.specifier.contains(core.version, prereleases=True):
                raise Refused(
                    f"{project.directory}/pyproject.toml needs {requirement}, and the core is {core.version}: "
                    "change one of them, commit, and tag that commit"
                )

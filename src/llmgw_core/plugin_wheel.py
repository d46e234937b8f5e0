"""Which wheels in a plugin directory take the place of what is inside the file `llmgw`.

In: what was read of each wheel, and what is installed here.  Out: the wheels to use, and the others with the reason.
Pure. Rules: a wheel that is refused changes nothing, so what it was to replace goes on; of two versions the newer is
used; an older version than the one inside is used all the same, since a way back is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename
from packaging.version import Version

from llmgw_core.engines import RefusedPlugin

GROUPS = frozenset({"llmgw.engines", "llmgw.site"})


@frozen
class WheelFile:
    """A file `*.whl`, as it was read; `fault` says why nobody can or should read it."""

    path: str
    name: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    groups: frozenset[str] = frozenset()
    fault: str = ""
    way_out: str = ""


@frozen
class Here:
    """What a wheel has to fit: this Python, and the distributions that are installed, by canonical name."""

    python: str
    tags: frozenset[Tag]
    versions: Mapping[str, str]
    environment: dict[str, str] = field(factory=dict)
    """Replaces parts of the environment in which markers are read."""


@frozen
class Chosen:
    used: tuple[WheelFile, ...] = ()
    refused: tuple[RefusedPlugin, ...] = ()


def choose(wheels: Iterable[WheelFile], here: Here) -> Chosen:
    """The newest fitting wheel of each distribution, and a refusal for each other one."""
    used: dict[str, WheelFile] = {}
    refused = []
    for wheel in sorted(wheels, key=lambda each: each.path):
        why, way_out = _fault(wheel, here)
        rival = used.get(canonicalize_name(wheel.name))
        if why:
            refused.append(_refusal(wheel, why, way_out))
        elif rival is None:
            used[canonicalize_name(wheel.name)] = wheel
        else:
            older, newer = sorted((rival, wheel), key=lambda each: Version(each.version))
            used[canonicalize_name(wheel.name)] = newer
            refused.append(_refusal(older, f"{newer.path} is newer", f"remove {older.path}"))
    return Chosen(tuple(used.values()), tuple(refused))


def _refusal(wheel: WheelFile, why: str, way_out: str) -> RefusedPlugin:
    file = wheel.path.rpartition("/")[2]
    words = file.split("-")
    name = wheel.name or words[0].replace("_", "-")
    version = wheel.version or (words[1] if len(words) > 1 else "unknown version")
    return RefusedPlugin(file, name, version, why, way_out)


def _fault(wheel: WheelFile, here: Here) -> tuple[str, str]:
    """Why a wheel is not used, and the way out; two empty texts when it is."""
    if wheel.fault:
        return wheel.fault, wheel.way_out
    try:
        name, version, _, tags = parse_wheel_filename(wheel.path.rpartition("/")[2])
    except InvalidWheelFilename as error:
        return f"its file's name is no wheel's: {error}", "copy it anew, with the name that it was released with"
    if (name, str(version)) != (
        canonicalize_name(wheel.name),
        canonicalize_version(wheel.version, strip_trailing_zero=False),
    ):
        return f"it holds {wheel.name} {wheel.version}", f"rename {wheel.path}, or copy it anew"
    if not tags & here.tags:
        return f"it is made for another Python or machine than {here.python} here", f"remove {wheel.path}"
    if not wheel.groups & GROUPS:
        return "it is no plugin: it has no entry point in llmgw.engines or llmgw.site", f"remove {wheel.path}"
    unmet = _unmet(wheel, here)
    return (unmet, f"remove {wheel.path}, or put a release of {wheel.name} there that fits") if unmet else ("", "")


def _unmet(wheel: WheelFile, here: Here) -> str:
    """The first requirement that is not met; empty when all are."""
    try:
        if here.python not in SpecifierSet(wheel.requires_python):
            return f"it needs Python {wheel.requires_python}, this is {here.python}"
        return next(filter(None, (_unmet_one(Requirement(each), here) for each in wheel.requires)), "")
    except (InvalidRequirement, InvalidSpecifier) as error:
        return f"what it says that it needs cannot be read: {' '.join(str(error).split())}"


def _unmet_one(requirement: Requirement, here: Here) -> str:
    if requirement.marker and not requirement.marker.evaluate({"extra": "", **here.environment}):
        return ""
    version = here.versions.get(canonicalize_name(requirement.name))
    if version is None:
        return f"it needs {requirement.name}, which is not in this file"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"it needs {requirement.name}{requirement.specifier}, this is {version}"
    return ""


def names(distributions: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Versions by canonical name; of a name that comes twice, the first, as Python finds it."""
    return {canonicalize_name(name): version for name, version in reversed(distributions)}

"""What is in a release's files, as a CycloneDX document: each wheel with its digest and licence, and what needs what.

In: the wheels and which files they are in.  Out: JSON, the same bytes at every run, valid against the schema.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from attrs import frozen
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.release.tag import Refused, Release

_LONGEST_LICENCE = 60


class NotValid(Refused):
    """The document is not what the schema wants."""


@frozen
class Wheel:
    """A wheel as its metadata says."""

    file: str
    digest: str
    name: str
    version: str
    licence: str = ""
    requires: tuple[str, ...] = ()


def read_wheels(houses: Iterable[Path]) -> tuple[Wheel, ...]:
    """Every wheel in the directories once, by name."""
    paths = {path.name: path for house in houses for path in sorted(house.glob("*.whl"))}
    return tuple(_read_wheel(path) for _, path in sorted(paths.items()))


def _read_wheel(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = HeaderParser().parsestr(archive.read(metadata).decode("utf-8"))
    digest = sha256(path.read_bytes()).hexdigest()
    needs = tuple(map(str, said.get_all("Requires-Dist", ())))
    return Wheel(path.name, digest, said["Name"], said["Version"], licence_of(said), needs)


def licence_of(said: Message) -> str:
    """A licence's name, from the newest way of saying it to the oldest; empty where the metadata has none."""
    short = str(said.get("License", "")).strip()
    if said.get("License-Expression"):
        return str(said["License-Expression"])
    if short and "\n" not in short and len(short) <= _LONGEST_LICENCE:
        return short
    told = [str(each) for each in said.get_all("Classifier", ()) if each.startswith("License ::")]
    return " OR ".join(each.rpartition(" :: ")[2] for each in told)


def render_sbom(release: Release, wheels: Sequence[Wheel], files: Mapping[str, str], tools: Mapping[str, str]) -> str:
    """`files` has each file's digest by its name; `tools` the versions of what is put in besides wheels."""
    name = release.title.rpartition("-")[0]
    about = Component(name=name, version=release.version, type=ComponentType.APPLICATION, bom_ref=release.title)
    components = _components(wheels)
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"llmgw:{release.tag}:{release.commit}"),
        metadata=BomMetaData(component=about, timestamp=datetime.fromtimestamp(release.committed_s, UTC)),
        components=[
            *components.values(),
            *(_file(name, digest) for name, digest in files.items()),
            *(_library(name, version) for name, version in tools.items()),
        ],
    )
    bom.register_dependency(about, [components[canonicalize_name(each.name)] for each in release.projects])
    for wheel in wheels:
        needed = (components.get(canonicalize_name(Requirement(each).name)) for each in wheel.requires)
        bom.register_dependency(components[canonicalize_name(wheel.name)], [each for each in needed if each])
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    validate(text)
    return text + "\n"


def validate(text: str) -> None:
    """Raises `NotValid` unless the text is CycloneDX 1.6."""
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        raise NotValid(f"the SBOM is not valid: {fault}")


def _components(wheels: Iterable[Wheel]) -> dict[str, Component]:
    """One component for each distribution; all its wheels are references of it."""
    found: dict[str, Component] = {}
    for wheel in wheels:
        component = found.setdefault(canonicalize_name(wheel.name), _library(wheel.name, wheel.version, wheel.licence))
        digest = HashType(alg=HashAlgorithm.SHA_256, content=wheel.digest)
        place = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(wheel.file), hashes=[digest])
        component.external_references.add(place)
    return found


def _library(name: str, version: str, licence: str = "") -> Component:
    purl = PackageURL("pypi", name=canonicalize_name(name), version=version)
    licences: list[License] = [LicenseFactory().make_from_string(licence)] if licence else []
    return Component(name=name, version=version, purl=purl, bom_ref=str(purl), licenses=licences)


def _file(name: str, digest: str) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    return Component(name=name, type=ComponentType.FILE, bom_ref=name, hashes=hashes)

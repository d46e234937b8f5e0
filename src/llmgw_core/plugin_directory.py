"""Plugin wheels beside the file `llmgw`: found, read, unpacked, and put before what is inside.

The file's own start sets `LLMGW_FILE` (where it is) and `LLMGW_CACHE` (where it unpacks); without them nothing is
looked at, and pip says which plugins there are. Rules: nothing is taken from a place that anybody but root and whoever
runs this could write to; a wheel is unpacked whole or not at all, under its digest, so that a file that changes harms
no process that runs; what cannot be used, or imported, is a refusal, never an error, and what is inside goes on.
"""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from llmgw_core.engines import RefusedPlugin

if TYPE_CHECKING:
    from llmgw_core.plugin_wheel import Chosen, Here, WheelFile

DIRECTORY = "llmgw.d"
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_UNREADABLE = (OSError, zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, EOFError, RuntimeError)


@frozen
class Beside:
    """The wheels in use, by the directory that each was unpacked into; those refused; the file `llmgw`."""

    wheels: Mapping[str, str] = field(factory=dict)
    refused: tuple[RefusedPlugin, ...] = ()
    file: str = ""

    def place_of(self, root: str) -> str:
        """Where a distribution comes from, whose files are in the directory `root`."""
        return self.wheels.get(root) or (f"inside {self.file}" if self.file else root)


def put_before(environment: Mapping[str, str]) -> Beside:
    """Let Python find the wheels beside this file before what is inside it. Raises nothing."""
    file, cache = environment.get("LLMGW_FILE"), environment.get("LLMGW_CACHE")
    if not file or not cache:
        return Beside()
    directory = Path(environment.get("LLMGW_PLUGINS") or Path(file).parent / DIRECTORY)
    if not directory.is_dir() and not environment.get("LLMGW_PLUGINS"):
        return Beside(file=file)
    from llmgw_core.plugin_wheel import choose  # with packaging, which nothing else needs

    here = _here(Path(cache))
    chosen = choose(read_directory(directory), here)
    return evolve(_unpacked(chosen, Path(cache) / "plugins", here.versions), file=file)


def _here(cache: Path) -> Here:
    from importlib.metadata import distributions
    from platform import python_version

    from packaging.tags import sys_tags

    from llmgw_core.plugin_wheel import Here, names

    inside = [path for path in sys.path if not path.startswith(str(cache / "plugins"))]
    installed = [(each.name, each.version) for each in distributions(path=inside) if each.name]
    return Here(python_version(), frozenset(sys_tags()), names(installed))


def read_directory(directory: Path) -> tuple[WheelFile, ...]:
    """Every `*.whl` in the directory; one that others may write to is read no further than its name."""
    from llmgw_core.plugin_wheel import WheelFile

    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".whl"))
    except OSError as error:
        fault, way_out = f"{directory} cannot be read: {error.strerror}", f"make {directory} readable, or name another"
        return (WheelFile(str(directory / "*.whl"), fault=fault, way_out=way_out),)
    return tuple(_read_trusted(directory / name) for name in names)


def _read_trusted(path: Path) -> WheelFile:
    from llmgw_core.plugin_wheel import WheelFile

    wheel = WheelFile(str(path))
    try:
        distrust, way_out = find_distrust(path)
    except OSError as error:
        return evolve(wheel, fault=f"it cannot be read: {error.strerror}", way_out=f"mend or remove {path}")
    if distrust:
        return evolve(wheel, fault=distrust, way_out=way_out)
    if not path.is_file():  # to open a pipe would be to wait
        return evolve(wheel, fault="it is no regular file", way_out=f"remove {path}")
    try:
        return _read_wheel(path)
    except _UNREADABLE as error:
        return evolve(wheel, fault=f"it is no whole wheel: {error}", way_out=f"copy it anew, or remove {path}")


def find_distrust(path: Path) -> tuple[str, str]:
    """Who else could change this file, and the way out; two empty texts when nobody could.

    A file lies as safely as its least safe parent. In a directory such as /tmp only the owner can replace an entry.
    """
    place = path.resolve(strict=True)
    for each in (place, *place.parents):
        told = each.stat()
        if told.st_uid not in {0, os.geteuid()}:
            return f"{each} belongs to user {told.st_uid}, neither root nor who runs this", f"chown root {each}"
        if told.st_mode & OTHERS_MAY_WRITE and not (stat.S_ISDIR(told.st_mode) and told.st_mode & stat.S_ISVTX):
            return f"others may write to {each}", f"chmod go-w {each}"
    return "", ""


def _read_wheel(path: Path) -> WheelFile:
    from email.parser import HeaderParser

    from llmgw_core.plugin_wheel import WheelFile

    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"{damaged} is damaged")
        metadata = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        if len(metadata) != 1:
            raise zipfile.BadZipFile(f"it has {len(metadata)} files METADATA")
        said = HeaderParser().parsestr(archive.read(metadata[0]).decode("utf-8"))
        return WheelFile(
            str(path),
            name=str(said["Name"]),
            version=str(said["Version"]),
            requires=tuple(map(str, said.get_all("Requires-Dist", ()))),
            requires_python=str(said.get("Requires-Python", "")),
            groups=_groups(archive, metadata[0].rpartition("/")[0] + "/entry_points.txt"),
        )


def _groups(archive: zipfile.ZipFile, name: str) -> frozenset[str]:
    if name not in archive.namelist():
        return frozenset()
    lines = archive.read(name).decode("utf-8").splitlines()
    return frozenset(line.strip()[1:-1].strip() for line in lines if line.strip().startswith("["))


def _unpacked(chosen: Chosen, cache: Path, inside: Mapping[str, str]) -> Beside:
    from packaging.utils import canonicalize_name

    wheels, refused = {}, list(chosen.refused)
    for wheel in chosen.used:
        try:
            place = str(_unpack(Path(wheel.path), cache))
        except _UNREADABLE as error:
            why = f"it cannot be unpacked into {cache}: {error}"
            way_out = "run llmgw engines once as who may write there, or set LLMGW_CACHE"
            refused.append(RefusedPlugin(Path(wheel.path).name, wheel.name, wheel.version, why, way_out))
            continue
        if place not in sys.path:
            sys.path.insert(0, place)
        replaced = inside.get(canonicalize_name(wheel.name))
        if replaced and (fault := _why_not_imported(place)):
            _take_out(place)
            why = f"{fault}, so {wheel.name} {replaced} inside is used"
            way_out = f"remove {wheel.path}, or put another release of it there"
            refused.append(RefusedPlugin(Path(wheel.path).name, wheel.name, wheel.version, why, way_out))
            continue
        wheels[place] = wheel.path
    return Beside(wheels, tuple(refused))


def _why_not_imported(place: str) -> str:
    """Of what it registers, what cannot be imported; empty: all can. It is imported a little later in any case."""
    from importlib.metadata import distributions

    from llmgw_core.plugin_wheel import GROUPS

    for entry in (each for found in distributions(path=[place]) for each in found.entry_points):
        try:
            if entry.group in GROUPS:
                with redirect_stdout(sys.stderr):
                    entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an extension module's panic is no Exception
            return f"importing {entry.value} failed: {type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def _take_out(place: str) -> None:
    """As if it had never been found."""
    from importlib import invalidate_caches

    sys.path.remove(place)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{place}{os.sep}"):
            del sys.modules[name]
    invalidate_caches()


def _unpack(path: Path, cache: Path) -> Path:
    """The directory with the wheel's contents; a second process that unpacks the same finds the first one's."""
    from hashlib import sha256

    data = path.read_bytes()
    place = cache / sha256(data).hexdigest()[:32]
    if not place.is_dir():
        _unpack_into(place, data)
    distrust, _ = find_distrust(place)
    if distrust:
        raise PermissionError(distrust)
    return place


def _unpack_into(place: Path, data: bytes) -> None:
    from compileall import compile_dir
    from io import BytesIO
    from tempfile import TemporaryDirectory

    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix="new-") as new:
        whole = Path(new) / "whole"
        with zipfile.ZipFile(BytesIO(data)) as archive:
            archive.extractall(whole)
        compile_dir(whole, quiet=2, stripdir=str(whole), prependdir=str(place))
        try:
            whole.rename(place)
        except OSError:  # another process was quicker
            if not place.is_dir():
                raise

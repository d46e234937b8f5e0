"""Whether a shared library runs where its file says that it runs.

In: the bytes of a file.  Out: what is wrong with it for a target.  Pure: no tag of a wheel is trusted, since a wheel
may carry an old and a new tag together, and means the new one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from io import BytesIO

from attrs import frozen
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from tools.release.target import NEWEST_GLIBC, Target

MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
# What every Linux with glibc has: glibc's own libraries, and libgcc_s, by which glibc ends threads. libstdc++ is not.
EVERYWHERE = re.compile(r"(lib(c|m|dl|rt|pthread|util|resolv|gcc_s)|ld-linux[\w-]*)\.so\.\d+")
_MACH_THIN, _MACH_FAT, _CPU_ARM64 = 0xFEEDFACF, 0xCAFEBABE, 0x0100000C
_CPUS = {_CPU_ARM64: "arm64", 0x01000007: "x86_64"}


@frozen
class Library:
    """A shared library or program, as its header says."""

    system: str
    machines: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """The files that must be found beside or under it."""
    versions: tuple[str, ...] = ()
    """The symbol versions that it wants: `GLIBC_2.17`."""
    fault: str = ""


def read_library(data: bytes) -> Library | None:
    """What the bytes are; nothing when they are no program's or library's."""
    if data[:4] == b"\x7fELF":
        try:
            return _read_elf(data)
        except (ELFError, ValueError, KeyError, IndexError) as error:
            return Library("Linux", (), fault=f"its ELF header cannot be read: {error}")
    if data[:2] == b"MZ":
        return Library("Windows", ())
    if len(data) >= 8 and struct.unpack("<I", data[:4])[0] == _MACH_THIN:
        return Library("Darwin", (_cpu(struct.unpack("<I", data[4:8])[0]),))
    if len(data) >= 8 and struct.unpack(">I", data[:4])[0] == _MACH_FAT:
        return _read_fat(data)
    return None


def _read_elf(data: bytes) -> Library:
    file = ELFFile(BytesIO(data))
    machine = MACHINES.get(file["e_machine"], str(file["e_machine"]))
    needs: list[str] = []
    versions: list[str] = []
    for section in file.iter_sections():
        if isinstance(section, DynamicSection):
            needs += [str(vars(tag)["needed"]) for tag in section.iter_tags("DT_NEEDED")]
        elif isinstance(section, GNUVerNeedSection):
            versions += [each.name for _, wanted in section.iter_versions() for each in wanted]
    fault = "" if needs or versions or not _is_dynamic(file) else "it has no sections, so what it needs cannot be read"
    return Library("Linux", (machine,), tuple(needs), tuple(versions), fault)


def _is_dynamic(file: ELFFile) -> bool:
    return any(segment["p_type"] == "PT_DYNAMIC" for segment in file.iter_segments()) and not file.num_sections()


def _read_fat(data: bytes) -> Library | None:
    count = struct.unpack(">I", data[4:8])[0]
    if not 0 < count < 16 or len(data) < 8 + 20 * count:  # Java's class files begin so too, with a version here
        return None
    return Library("Darwin", tuple(_cpu(struct.unpack(">I", data[8 + 20 * i :][:4])[0]) for i in range(count)))


def _cpu(number: int) -> str:
    return _CPUS.get(number, f"CPU {number:#x}")


def find_faults(library: Library, target: Target, beside: Iterable[str] = ()) -> Iterator[str]:
    """What is wrong with a library for this target; `beside` has the names of the libraries in the same wheel."""
    if library.fault:
        yield library.fault
    elif library.system != target.system or target.machine not in library.machines:
        yield f"is for {library.system} {'/'.join(library.machines)}, not for {target.system} {target.machine}"
    else:
        yield from _too_new(library.versions)
        there = set(beside)
        for name in library.needs:
            if library.system == "Linux" and name not in there and not EVERYWHERE.fullmatch(name):
                yield f"needs {name}, which a node need not have"


def _too_new(versions: Iterable[str]) -> Iterator[str]:
    for version in sorted(set(versions)):
        if not version.startswith("GLIBC_"):
            continue
        numbers = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        if numbers is None:
            yield f"needs {version}, which is in no numbered glibc"
        elif (int(numbers[1]), int(numbers[2])) > NEWEST_GLIBC:
            yield f"needs glibc {version.removeprefix('GLIBC_')}, newer than {'.'.join(map(str, NEWEST_GLIBC))}"

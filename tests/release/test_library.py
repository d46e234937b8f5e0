"""Every bundled library is read itself: what glibc it wants, which machine it is for, what it needs beside it."""

import shutil
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tests.release.conftest import ROOT
from tools.release.bundle import CannotBundle, download
from tools.release.check import check_file, main, target_of
from tools.release.library import Library, find_faults, read_library
from tools.release.lock import LOCK
from tools.release.target import PYTHONS, TARGETS, Target

AMD64, ARM64, MAC = TARGETS


def faults(library: Library | None, target: Target, *beside: str) -> list[str]:
    assert library is not None
    return list(find_faults(library, target, beside))


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def wheels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Target, list[Path]]:
    target: Target = request.param
    house = tmp_path_factory.mktemp(target.name)
    try:
        download(ROOT / LOCK, target, house, PYTHONS[:1])
    except CannotBundle as error:
        pytest.skip(f"the locked wheels cannot be had: {str(error)[-300:]}")
    return target, [path for path in house.glob("*.whl") if not path.name.endswith("-none-any.whl")]


def test_the_real_wheels_of_each_platform_run_there_and_on_no_other(wheels: tuple[Target, list[Path]]) -> None:
    target, paths = wheels
    assert {path.name.split("-")[0] for path in paths} == {"cffi", "cryptography", "httptools", "msgspec"}
    for path in paths:
        assert check_file(path, target).faults == ()
        for other in TARGETS:
            if other is not target:
                told = check_file(path, other).faults
                assert told
                assert all(f"is for {target.system} {target.machine}, not for" in line for line in told)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a compiler of this machine makes: it wants this machine's glibc."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler for Linux: nothing is compiled against this machine's glibc")
    place = tmp_path_factory.mktemp("compiled")
    (place / "new.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, "new.c", "-o", "new.so"], cwd=place, check=True, timeout=60)
    return place / "new.so"


def test_what_is_compiled_against_a_newer_glibc_is_refused_whatever_its_tags_say(compiled: Path) -> None:
    (here,) = (each for each in TARGETS if each.system == "Linux" and each.machine in sysconfig.get_platform())
    found = faults(read_library(compiled.read_bytes()), here)
    if not found:
        pytest.skip("this machine's glibc is 2.33 or older: what it compiles runs on 2.17")
    assert found == ["needs glibc 2.34, newer than 2.17"]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (("GLIBC_2.2.5", "GLIBC_2.17"), []),
        (("GLIBC_2.17", "GLIBC_2.18"), ["needs glibc 2.18, newer than 2.17"]),
        (("GLIBC_3.0",), ["needs glibc 3.0, newer than 2.17"]),
        (("GLIBC_2.2.5", "GLIBCXX_3.4.29", "OPENSSL_3.0.0"), []),
        (("GLIBC_ABI_DT_RELR",), ["needs GLIBC_ABI_DT_RELR, which is in no numbered glibc"]),
        (("GLIBC_PRIVATE",), ["needs GLIBC_PRIVATE, which is in no numbered glibc"]),
    ],
)
def test_symbol_versions_are_judged_as_numbers(versions: tuple[str, ...], said: list[str]) -> None:
    assert faults(Library("Linux", ("x86_64",), ("libc.so.6",), versions), AMD64) == said


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libpthread.so.0"])
def test_what_glibc_brings_may_be_needed(name: str) -> None:
    assert faults(Library("Linux", ("x86_64",), (name,)), AMD64) == []


@pytest.mark.parametrize("name", ["libstdc++.so.6", "libssl.so.3", "libc.musl-x86_64.so.1"])
def test_what_a_node_need_not_have_may_not(name: str) -> None:
    assert faults(Library("Linux", ("x86_64",), (name,)), AMD64) == [f"needs {name}, which a node need not have"]
    assert faults(Library("Linux", ("x86_64",), (name,)), AMD64, name) == []


def mach(cpu: int) -> bytes:
    return struct.pack("<II", 0xFEEDFACF, cpu) + bytes(24)


ARM_CPU, INTEL_CPU = 0x0100000C, 0x01000007
FAT = (
    struct.pack(">II", 0xCAFEBABE, 2)
    + struct.pack(">5I", INTEL_CPU, 0, 0, 0, 0)
    + struct.pack(">5I", ARM_CPU, 0, 0, 0, 0)
)


def test_libraries_of_macos_are_known_by_their_processor() -> None:
    assert faults(read_library(mach(ARM_CPU)), MAC) == []
    assert faults(read_library(FAT), MAC) == []
    assert faults(read_library(mach(INTEL_CPU)), MAC) == ["is for Darwin x86_64, not for Darwin arm64"]
    assert faults(read_library(mach(ARM_CPU)), ARM64) == ["is for Darwin arm64, not for Linux aarch64"]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"#!/bin/sh\n", b"\xca\xfe\xba\xbe\x00\x00\x00\x41" + bytes(64)])
def test_what_is_no_library_is_let_be(data: bytes) -> None:
    assert read_library(data) is None


@pytest.mark.parametrize("length", [4, 20, 63, 64, 200])
def test_a_library_that_is_cut_is_a_fault_and_not_a_crash(length: int) -> None:
    whole = Path(sys.executable).resolve().read_bytes()
    assert faults(read_library(whole[:length]), AMD64)


def test_a_release_is_known_by_its_name() -> None:
    assert target_of("llmgw-0.1.0-linux-arm64") is ARM64
    assert target_of("llmgw-0.1.0") is None


def test_the_check_stands_alone_and_says_what_it_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = tmp_path / "x-1-cp311-cp311-macosx_11_0_arm64.whl"
    with zipfile.ZipFile(inner, "w") as wheel:
        wheel.writestr("x.so", mach(ARM_CPU))
    for name in ("x-darwin-arm64", "x-linux-amd64"):
        with zipfile.ZipFile(tmp_path / name, "w") as outer:
            outer.write(inner, f".deps/{inner.name}")
            outer.writestr(".bootstrap/pex/windows/stub.exe", b"MZ")
    assert main([str(tmp_path / "x-darwin-arm64")]) == 0
    assert capsys.readouterr().out == "x-darwin-arm64: 1 libraries, all for darwin-arm64\n"
    assert main([str(tmp_path / "x-linux-amd64")]) == 1
    assert capsys.readouterr().err == (f"x-linux-amd64: {inner.name}!x.so: is for Darwin arm64, not for Linux x86_64\n")


def test_a_file_without_any_library_is_not_the_one_that_was_meant(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x-linux-amd64", "w") as archive:
        archive.writestr("x.py", "")
    assert "no library was found" in check_file(tmp_path / "x-linux-amd64", AMD64).faults[0]

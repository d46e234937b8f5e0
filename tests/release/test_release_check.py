"""The heavy proofs, by `make release-check`: two whole releases with the same bytes, each file where it can be run.

Root, debootstrap and qemu-user-static are used where they are there, and each proof that cannot be made is a skip with
its reason. Emulation is registered in a user namespace of the test's own, and leaves nothing behind.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.release.conftest import ROOT
from tests.release.test_refusals import git
from tools.release.sbom import validate

pytestmark = pytest.mark.skipif(
    not os.environ.get("LLMGW_RELEASE_CHECK"), reason="minutes long: make release-check runs it"
)
TAG = "v0.1.0"
MINUTES_S = 900
# What the kernel is told of an aarch64 ELF header: its magic, mask and interpreter, kept open (F) and told argv[0] (P).
BINFMT = (
    r":qemu-aarch64:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F"
)

EMULATED = """
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$1" >/proc/sys/fs/binfmt_misc/register
shift
exec chroot "$@"
"""


def run(*words: str | Path, path: Path | None = None) -> str:
    ended = subprocess.run(
        [*map(str, words)],
        cwd=path,
        capture_output=True,
        text=True,
        timeout=MINUTES_S,
    )
    assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same tag, released twice: in two clones, under two names, with two umasks."""
    made = []
    for name, umask in (("one", "022"), ("another place", "077")):
        clone = tmp_path_factory.mktemp("clones") / name
        run("git", "clone", "--quiet", ROOT, clone)
        git(clone, "tag", "--force", "-a", "-m", TAG, TAG)
        run("sh", "-c", f"umask {umask}; exec make -C '{clone}' release")
        made.append(clone / "dist" / "llmgw-0.1.0")
    return made


@pytest.fixture(scope="module")
def commit(releases: list[Path]) -> str:
    return run("git", "-C", releases[0].parents[1], "rev-parse", "HEAD")[:8]


def file_for(releases: list[Path], target: str) -> Path:
    return releases[0] / f"llmgw-0.1.0-{target}"


def test_two_runs_give_the_same_bytes(releases: list[Path]) -> None:
    first, second = ({each.name: each.read_bytes() for each in place.iterdir()} for place in releases)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []
    assert len(first) == 16


def test_the_sums_are_those_of_the_files_and_the_sbom_is_valid(releases: list[Path]) -> None:
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", path=releases[0])
    validate((releases[0] / "llmgw-0.1.0.cdx.json").read_text())
    assert "## llmgw-engine-sim 0.1.0" in (releases[0] / "RELEASE-NOTES.md").read_text()


def test_the_wheels_say_which_commit_they_are_of(releases: list[Path], commit: str, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    pip = (tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, *releases[0].glob("*.whl"))
    assert run(tmp_path / "venv" / "bin" / "llmgw", "--version") == f"llmgw 0.1.0 ({TAG}, {commit})\n"


def answers(python: str) -> bool:
    """Some names are shims that only tell what is missing."""
    return shutil.which(python) is not None and not subprocess.run([python, "-c", ""], capture_output=True).returncode


@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_the_linux_amd64_file_runs_on_each_python(
    releases: list[Path], commit: str, tmp_path: Path, python: str
) -> None:
    candidates = [*map(str, Path.home().glob(f".pyenv/versions/{python[6:]}.*/bin/{python}")), python]
    found = next((each for each in candidates if answers(each)), None)
    if found is None:
        pytest.skip(f"no {python} on this machine")
    use = ("env", f"LLMGW_PYTHON={found}", f"LLMGW_CACHE={tmp_path}/cache", file_for(releases, "linux-amd64"))
    assert run(*use, "--version") == f"llmgw 0.1.0 ({TAG}, {commit})\n"
    (unpacked,) = (tmp_path / "cache").iterdir()
    assert run(unpacked / "bin" / "python", "--version").startswith(f"Python {python[6:]}.")
    assert run(*use, "ctl", "engine-check", "sglang", "--engine-version", "0.5.23").startswith("sglang: accepts")
    assert "Usage" in run(*use, "gateway", "--help")
    imports = "import cryptography.x509, httptools, msgspec, trio_websocket, multipart"
    run(unpacked / "bin" / "python", "-I", "-c", imports)


def debootstrapped(architecture: str, place: Path) -> Path:
    """A minimal Debian with python3."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("debootstrap and root are not both here: apt-get install debootstrap")
    foreign = ("--foreign",) if architecture == "arm64" else ()
    words = (f"--arch={architecture}", "--variant=minbase", "--include=python3", *foreign, "bookworm", place)
    run("debootstrap", *words)
    return place


def test_the_linux_amd64_file_runs_in_a_debootstrapped_tree(releases: list[Path], commit: str, tmp_path: Path) -> None:
    tree = debootstrapped("amd64", tmp_path / "tree")
    shutil.copy(file_for(releases, "linux-amd64"), tree / "usr/local/bin/llmgw")
    in_tree = ("unshare", "--net", "chroot", tree, "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "llmgw")
    assert run(*in_tree, "--version") == f"llmgw 0.1.0 ({TAG}, {commit})\n"
    assert run(*in_tree, "ctl", "engine-check", "vllm", "--engine-version", "0.32.0").startswith("vllm: accepts all")


def test_the_linux_arm64_file_runs_under_emulation(releases: list[Path], commit: str, tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no qemu-aarch64-static: apt-get install qemu-user-static")
    tree = debootstrapped("arm64", tmp_path / "tree")
    for archive in sorted((tree / "var/cache/apt/archives").glob("*.deb")):
        run("dpkg", "--extract", archive, tree)  # unpacked is enough for python3; setting it up would take minutes
    (tree / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(file_for(releases, "linux-arm64"), tree / "usr/local/bin/llmgw")
    prepare = (
        'mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && echo "$1" >/proc/sys/fs/binfmt_misc/register'
    )
    script = prepare + ' && shift && exec chroot "$@"'
    unshare = ("unshare", "--user", "--map-root-user", "--mount", "--net", "sh", "-c", script, "sh", BINFMT, tree)
    in_tree = (*unshare, "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root")
    if subprocess.run([*map(str, in_tree), "true"], capture_output=True).returncode:
        pytest.skip("this kernel registers no emulation in a user namespace (Linux 6.7 does)")
    assert run(*in_tree, "uname", "-m") == "aarch64\n"
    assert run(*in_tree, "llmgw", "--version") == f"llmgw 0.1.0 ({TAG}, {commit})\n"
    checked = run(*in_tree, "llmgw", "ctl", "engine-check", "vllm", "--engine-version", "0.32.0")
    assert checked.startswith("vllm: accepts all")

"""The file of this machine's platform: it runs where there is nothing but a python3, from where it may, as who it may.

The bare tree is this machine's own `/usr` without any package of Python's, in namespaces of its own: no network, no
home, nothing to write to but a cache. It costs a second, where debootstrap costs a minute; `make release-check` takes
that minute, and other architectures and Pythons.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.release.conftest import COMMIT, ROOT
from tools.release.bundle import run as run_tool
from tools.release.check import check_file, target_of
from tools.release.sbom import NotValid, read_wheels, render_sbom, validate
from tools.release.tag import Release

from llmgw_core.plugin_directory import DIRECTORY
from llmgw_core.testing.ports import free_port

TIMEOUT_S = 120
PYTHON_HOME = str(Path(sys.executable).resolve().parent)
SAID = f"llmgw 0.1.0 (v0.1.0, {COMMIT[:8]})\n"
PATH = f"{PYTHON_HOME}:/usr/bin:/bin"


def start(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": PATH, **environment}
    return subprocess.run([*map(str, words)], env=given, capture_output=True, text=True, timeout=TIMEOUT_S)


def run(*words: str | Path, **environment: str) -> str:
    ended = start(*words, **environment)
    assert (ended.returncode, ended.stderr) == (0, ""), f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def cache(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the file has unpacked itself."""
    cache = tmp_path_factory.mktemp("cache")
    assert run(file, "--version", LLMGW_CACHE=str(cache)) == SAID
    return cache


def test_it_unpacks_once_and_leaves_nothing_else(file: Path, cache: Path) -> None:
    (unpacked,) = cache.iterdir()
    assert unpacked.name.startswith("llmgw-0.1.0-")
    before = unpacked.stat().st_mtime_ns
    assert run(file, "--version", LLMGW_CACHE=str(cache)) == SAID
    assert [each.stat().st_mtime_ns for each in cache.iterdir()] == [before]


def test_a_relative_cache_and_a_relative_call_are_made_whole(file: Path, cache: Path) -> None:
    begin = f"cd {cache.parent} && export CDPATH={cache.parent}"
    call = f"{begin} && LLMGW_CACHE={cache.name} exec {os.path.relpath(file, cache.parent)} engines --json"
    found = json.loads(run("sh", "-c", call))
    assert {each["place"] for each in found["loaded"]} == {f"inside {file}"}


def test_every_library_in_it_is_for_its_platform(file: Path) -> None:
    target = target_of(file.name)
    assert target is not None
    checked = check_file(file, target)
    assert (checked.faults, checked.libraries > 4) == ((), True)


def test_its_plugins_say_that_they_are_inside_and_from_which_tag(file: Path, cache: Path) -> None:
    found = json.loads(run(file, "engines", "--json", LLMGW_CACHE=str(cache)))
    assert {(each["engine"], each["version"], each["place"], each["built_from"]) for each in found["loaded"]} == {
        (engine, "0.1.0", f"inside {file}", f"v0.1.0, {COMMIT[:8]}") for engine in ("vllm", "sglang", "llamacpp", "sim")
    }
    assert found["refused"] == []


def test_a_plugins_wheel_beside_it_replaces_the_one_inside(file: Path, cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "vllm"
    shutil.copytree(ROOT / "plugins" / "vllm", source)
    said = (source / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(said.replace('version = "0.1.0"', 'version = "0.1.1"'))
    beside = tmp_path / DIRECTORY
    run_tool((sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", beside, source))
    shutil.copy(file, tmp_path / "llmgw")
    environment = {"LLMGW_CACHE": str(cache)}
    listed = run(tmp_path / "llmgw", "engines", **environment)
    assert re.search(
        rf"^vllm +llmgw-engine-vllm 0.1.1 +{beside}/llmgw_engine_vllm-0.1.1-py3-none-any.whl ", listed, re.M
    )
    assert re.search(rf"^sglang +llmgw-engine-sglang 0.1.0 +inside {tmp_path}/llmgw ", listed, re.M)
    check = ("ctl", "engine-check", "vllm", "--engine-version", "0.32.0")
    assert run(tmp_path / "llmgw", *check, **environment).startswith("vllm: accepts all")


def test_a_link_by_another_commands_name_is_that_command(file: Path, cache: Path, tmp_path: Path) -> None:
    for name in ("llmgw-provision-node", "llmgw-sim"):
        (tmp_path / name).symlink_to(file)
        assert name in run(tmp_path / name, "--help", LLMGW_CACHE=str(cache), COLUMNS="80").split("\n\n")[0]


def test_what_it_starts_finds_its_commands_beside_its_python(file: Path, cache: Path) -> None:
    """Agents find `llmgw-sim` so, and `llmgw demo` its fleet."""
    (unpacked,) = cache.glob("llmgw-*")
    assert run(unpacked / "bin" / "llmgw", "--version") == SAID
    assert run(unpacked / "bin" / "llmgw-sim", "--help", COLUMNS="80").startswith("usage: llmgw-sim")
    assert not [
        each for each in (unpacked / "bin").iterdir() if b"/new-" in each.read_bytes() and not each.is_symlink()
    ]


def test_arguments_come_through_as_they_are(file: Path, cache: Path) -> None:
    ended = start(file, "no such * command", "", "a'b", LLMGW_CACHE=str(cache))
    assert ended.returncode == 2
    assert "'no such * command'" in ended.stderr


def test_a_file_that_is_replaced_while_it_runs_harms_nobody(file: Path, cache: Path, tmp_path: Path) -> None:
    """F33."""
    mine, sim = tmp_path / "llmgw", tmp_path / "llmgw-sim"
    shutil.copy(file, mine)
    sim.symlink_to(mine)
    port = free_port()
    environment = {"PATH": PATH, "LLMGW_CACHE": str(cache)}
    with subprocess.Popen([sim, "--model", "m", "--port", str(port), "--load-time", "0"], env=environment) as running:
        try:
            wait_until_healthy(f"http://127.0.0.1:{port}/health")
            new = tmp_path / "new"
            new.write_text("#!/bin/sh\necho another release\n")
            new.chmod(0o755)
            new.rename(mine)
            assert run(mine) == "another release\n"
            asked = Request(
                f"http://127.0.0.1:{port}/v1/completions",
                data=b'{"model": "m", "prompt": "Hi", "max_tokens": 2}',
                headers={"Content-Type": "application/json"},
            )
            with urlopen(asked, timeout=TIMEOUT_S) as answer:  # noqa: S310 - our own
                assert b"choices" in answer.read()
        finally:
            running.terminate()


def wait_until_healthy(url: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - our own
                assert answer.status == 200
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_two_that_unpack_at_the_same_time_both_run(file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.append(run(file, "--version", LLMGW_CACHE=str(tmp_path / "cache"))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [SAID, SAID]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_when_its_python_has_gone_it_unpacks_itself_anew(file: Path, cache: Path, tmp_path: Path) -> None:
    mine = tmp_path / "cache"
    shutil.copytree(cache, mine, symlinks=True)
    (unpacked,) = mine.glob("llmgw-*")
    (link,) = (each for each in (unpacked / "bin").iterdir() if each.is_symlink() and "/" in os.readlink(each))
    link.unlink()
    link.symlink_to("/usr/bin/python3.gone")
    python = tmp_path / "my python"
    python.symlink_to(Path(sys.executable).resolve())
    hostile = {"LLMGW_PYTHON": str(python), "PYTHONHOME": "/nope", "PYTHONPATH": "/nope"}
    assert run(file, "--version", LLMGW_CACHE=str(mine), **hostile) == SAID
    assert list(mine.glob("llmgw-*")) == [unpacked]
    assert not [*mine.glob("new-*"), *mine.glob("try-*")]


def test_an_old_python_is_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    ended = start(file, "--version", PATH=path, LLMGW_CACHE=str(tmp_path / "cache"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"llmgw: it needs Python 3.11 to 3.14, and {path} has none: "
        "install python3, or set LLMGW_PYTHON=/path/to/python3.12\n"
    )


def test_a_python_that_is_named_and_too_old_is_named_in_the_refusal(file: Path, tmp_path: Path) -> None:
    old = tmp_path / "old python"
    old.write_text('#!/bin/sh\n[ -z "$3" ]\n')
    old.chmod(0o755)
    ended = start(file, "--version", LLMGW_PYTHON=str(old), LLMGW_CACHE=str(tmp_path / "cache"))
    assert ended.stderr == f"llmgw: it needs Python 3.11 to 3.14, and LLMGW_PYTHON={old} is another\n"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare, to mount")
def test_a_place_that_runs_no_programs_is_not_unpacked_into(file: Path, tmp_path: Path) -> None:
    mount = (
        f"mount -t tmpfs -o noexec,mode=755 tmpfs {tmp_path} && LLMGW_CACHE={tmp_path} {file} --version; ls {tmp_path}"
    )
    ended = start("unshare", "--mount", "--propagation", "private", "sh", "-c", mount)
    assert "set LLMGW_CACHE to one, not mounted noexec" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_cache_that_others_could_write_to_is_neither_filled_nor_run_from(
    file: Path, cache: Path, tmp_path: Path, mode: int
) -> None:
    bad = tmp_path / "cache"
    shutil.copytree(cache, bad, symlinks=True)
    bad.chmod(mode)
    ended = start(file, "--version", LLMGW_CACHE=str(bad))
    assert ended.returncode == 2
    assert ended.stderr.startswith("llmgw: there is no directory of ours to unpack into (tried:")
    assert ended.stderr.endswith("set LLMGW_CACHE to one, not mounted noexec\n")


BARE = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
cd "$1"
mkdir usr tmp etc proc dev root var opt bare
mount --bind /usr usr
for each in bin sbin lib lib32 lib64; do [ ! -L /$each ] || ln -s "$(readlink /$each)" $each; done
for each in usr/local usr/lib/python3/dist-packages; do [ ! -d $each ] || mount -t tmpfs tmpfs $each; done
mount -t proc proc proc
touch dev/null && mount --bind /dev/null dev/null
cp "$2" opt/llmgw
mkdir -p var/cache/llmgw
mount --bind "$3" var/cache/llmgw
shift 3
exec chroot . env -i PATH=/usr/bin:/bin "$@"
"""


class Bare:
    """A tree of its own for each command; what root has unpacked stays."""

    def __init__(self, place: Path, file: Path) -> None:
        self.place, self.file = place, file
        (place / "root").mkdir()
        (place / "cache").mkdir(mode=0o755)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        unshare = ("unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", BARE, "bare")
        places = (self.place / "root", self.file, self.place / "cache")
        return start(*unshare, *places, "sh", "-euc", script, PATH=os.environ["PATH"])


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, file: Path) -> Bare:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a bare tree needs Linux, root and unshare")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("this machine's /usr has no python3")
    bare = Bare(tmp_path_factory.mktemp("bare"), file)
    ended = bare.run("python3 -c 'import sys; print(*sys.version_info[:2])'")
    if ended.returncode:
        pytest.skip(f"no bare tree can be made here: {ended.stderr.strip()}")
    if tuple(map(int, ended.stdout.split())) != sys.version_info[:2]:
        pytest.skip(f"the file of this test is for Python {sys.version_info[:2]}, /usr has {ended.stdout.strip()}")
    return bare


def test_in_a_bare_tree_without_network_it_runs_and_checks_an_engine(bare: Bare) -> None:
    script = """
        ! python3 -c 'import attrs' 2>/dev/null
        /opt/llmgw --version
        /opt/llmgw ctl engine-check vllm --engine-version 0.32.0
        printf 'usage: none\\n' | /opt/llmgw ctl engine-check llamacpp --help-output - || echo "exit $?"
        ls /var/cache/llmgw /tmp /root
    """
    ended = bare.run(script)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert f"{lines[0]}\n" == SAID
    assert lines[1].startswith("vllm: accepts all")
    assert "exit 2" in lines


def test_what_root_has_unpacked_runs_for_whoever_may_write_nothing(bare: Bare) -> None:
    script = """
        /opt/llmgw --version
        mount -t tmpfs -o ro tmpfs /root
        mount -o remount,ro,bind /usr
        setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs env HOME=/root /opt/llmgw --version
    """
    ended = bare.run(script)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", 2 * SAID)


def test_who_may_write_nowhere_is_told_so_in_one_line(bare: Bare) -> None:
    script = """
        mount -t tmpfs -o ro tmpfs /var/cache/llmgw
        exec setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs env HOME=/root /opt/llmgw --version
    """
    ended = bare.run(script)
    assert ended.returncode == 2
    assert ended.stderr == (
        "llmgw: there is no directory of ours to unpack into (tried:  /root/.cache/llmgw): "
        "set LLMGW_CACHE to one, not mounted noexec\n"
    )


def test_a_units_cache_directory_is_used(bare: Bare) -> None:
    script = """
        /opt/llmgw --version
        cp -a /var/cache/llmgw /bare/unit
        mount -t tmpfs -o ro tmpfs /var/cache/llmgw
        CACHE_DIRECTORY=/bare/unit:/other /opt/llmgw --version
        ls /var/cache/llmgw
    """
    ended = bare.run(script)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", 2 * SAID)


def test_the_sbom_names_every_wheel_and_is_valid(release: Release, house: Path, own_wheels: Path) -> None:
    wheels = read_wheels((own_wheels, house))
    text = render_sbom(release, wheels, {"llmgw-0.1.0-linux-amd64": "ab" * 32}, {"pex": "2.0"})
    assert text == render_sbom(release, wheels, {"llmgw-0.1.0-linux-amd64": "ab" * 32}, {"pex": "2.0"})
    said = json.loads(text)
    found = {component["name"]: component for component in said["components"]}
    assert {wheel.name for wheel in wheels} < set(found)
    assert all(found[wheel.name].get("licenses") for wheel in wheels)
    assert {each["hashes"][0]["content"] for name in found for each in found[name].get("externalReferences", ())} == {
        wheel.digest for wheel in wheels
    }
    needs = {each["ref"]: each.get("dependsOn", []) for each in said["dependencies"]}
    assert any(ref.startswith("pkg:pypi/trio@") for ref in needs["pkg:pypi/llmgw-core@0.1.0"])


def test_a_document_that_is_no_sbom_is_refused() -> None:
    with pytest.raises(NotValid):
        validate('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "x"}]}')

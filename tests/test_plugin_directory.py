"""A plugin wheel beside the file takes the place of the one inside; one that does not fit is refused, by itself."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import patch

import pytest

from llmgw_core.built_from import DEVELOPMENT, built_from
from llmgw_core.plugin_directory import DIRECTORY, find_distrust, put_before, read_directory

PROBE = """
import os, json
from llmgw_core.plugins import load_engines
found = load_engines()
print(json.dumps({
    "loaded": {each.info.name: [each.version, each.place, each.built_from] for each in found.loaded},
    "refused": [str(each) for each in found.refused],
    "surfaces": len(__import__("llmgw_core.surface").surface.read_surfaces(found.info("vllm"), "vllm")),
}))
"""
SOURCE = Path(__file__).resolve().parents[1] / "plugins" / "vllm" / "src" / "llmgw_engine_vllm"


def a_wheel(directory: Path, version: str = "0.2.0", metadata: str = "", **replaced: str) -> Path:
    """A wheel of the vLLM plugin, under another version."""
    path = directory / replaced.get("file", f"llmgw_engine_vllm-{version}-py3-none-any.whl")
    info = f"llmgw_engine_vllm-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for each in sorted(SOURCE.rglob("*.*")):
            if each.suffix in {".py", ".json"}:
                more = replaced.get("last", "") if each.name == "__init__.py" else ""
                wheel.writestr(f"llmgw_engine_vllm/{each.relative_to(SOURCE)}", f"{each.read_text()}\n{more}\n")
        wheel.writestr("llmgw_engine_vllm/built-from.txt", "engine-vllm-v0.2.0 1a2b3c4d5e6f7a8b\n")
        said = metadata or "Requires-Dist: llmgw-core>=0.1,<0.2\nRequires-Python: >=3.11\n"
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.4\nName: llmgw-engine-vllm\nVersion: {version}\n{said}"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        entry = replaced.get("entry_points", "[llmgw.engines]\nvllm = llmgw_engine_vllm\n")
        wheel.writestr(f"{info}/entry_points.txt", entry)
    path.chmod(0o644)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / DIRECTORY).mkdir(mode=0o755)
    return tmp_path


def load(place: Path, **environment: str) -> dict[str, object]:
    """What a process of its own loads, since what is imported stays."""
    import json

    known = {"LLMGW_FILE": str(place / "llmgw"), "LLMGW_CACHE": str(place / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, **known, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def vllm(found: dict[str, object]) -> list[str]:
    loaded = found["loaded"]
    assert isinstance(loaded, dict)
    assert sorted(loaded) == ["llamacpp", "sglang", "sim", "vllm"]
    told: list[str] = loaded["vllm"]
    return told


def test_a_wheel_takes_the_place_of_the_one_inside_with_its_data(place: Path) -> None:
    wheel = a_wheel(place / DIRECTORY)
    found = load(place)
    assert vllm(found) == ["0.2.0", str(wheel), "engine-vllm-v0.2.0, 1a2b3c4d"]
    assert found["refused"] == []
    assert found["surfaces"] == len(list((SOURCE / "surfaces").glob("vllm-*.json")))


def test_without_a_wheel_everything_is_inside_the_file(place: Path) -> None:
    assert vllm(load(place))[1] == f"inside {place / 'llmgw'}"


def test_another_directory_is_named_by_the_environment(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    wheel = a_wheel(elsewhere)
    assert vllm(load(place, LLMGW_PLUGINS=str(elsewhere)))[1] == str(wheel)


def test_of_two_versions_the_newer_is_used_and_the_older_named(place: Path) -> None:
    newer, older = a_wheel(place / DIRECTORY, "0.10.0"), a_wheel(place / DIRECTORY, "0.9.0")
    found = load(place)
    assert vllm(found)[:2] == ["0.10.0", str(newer)]
    assert found["refused"] == [
        f"plugin {older.name} (llmgw-engine-vllm 0.9.0) refused: {newer} is newer; remove {older}"
    ]


def refusal(place: Path) -> str:
    """Why the one wheel is not used; what is inside is used in its place."""
    found = load(place)
    assert vllm(found)[1] == f"inside {place / 'llmgw'}"
    refused = found["refused"]
    assert isinstance(refused, list)
    (line,) = refused
    return str(line)


def test_a_wheel_for_another_core_is_refused(place: Path) -> None:
    a_wheel(place / DIRECTORY, metadata="Requires-Dist: llmgw-core>=0.2,<0.3\n")
    assert "it needs llmgw-core<0.3,>=0.2, this is 0.1.0; remove" in refusal(place)


def test_a_wheel_that_needs_what_is_not_inside_is_refused(place: Path) -> None:
    a_wheel(
        place / DIRECTORY, metadata="Requires-Dist: leftpad; python_version >= '3'\nRequires-Dist: x; extra == 'y'\n"
    )
    assert "it needs leftpad, which is not in this file; remove" in refusal(place)


def test_a_wheel_for_another_python_is_refused(place: Path) -> None:
    a_wheel(place / DIRECTORY, metadata="Requires-Python: >=4\n")
    assert "it needs Python >=4, this is 3." in refusal(place)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("llmgw_engine_vllm-0.2.0-cp37-cp37m-win32.whl", "it is made for another Python or machine than"),
        ("llmgw_engine_vllm-0.3.0-py3-none-any.whl", "it holds llmgw-engine-vllm 0.2.0; rename"),
        ("vllm.whl", "its file's name is no wheel's"),
    ],
)
def test_a_wheel_under_a_wrong_name_is_refused(place: Path, file: str, said: str) -> None:
    a_wheel(place / DIRECTORY, file=file)
    assert said in refusal(place)


def test_a_wheel_that_is_no_plugin_is_refused(place: Path) -> None:
    a_wheel(place / DIRECTORY, entry_points="[console_scripts]\nx = y:z\n")
    assert "it is no plugin: it has no entry point in llmgw.engines or llmgw.site" in refusal(place)


def test_a_wheel_that_is_cut_is_refused(place: Path) -> None:
    wheel = a_wheel(place / DIRECTORY)
    wheel.write_bytes(wheel.read_bytes()[:-3000])
    assert f"it is no whole wheel: File is not a zip file; copy it anew, or remove {wheel}" in refusal(place)


def test_a_pipe_is_no_wheel_and_is_not_waited_for(place: Path) -> None:
    os.mkfifo(place / DIRECTORY / "llmgw_engine_vllm-0.2.0-py3-none-any.whl", 0o644)
    assert "it is no regular file; remove" in refusal(place)


@pytest.mark.parametrize(("error", "said"), [(None, "No such file or directory"), (PermissionError(13, "no"), "no")])
def test_a_directory_that_cannot_be_read_is_told(tmp_path: Path, error: OSError | None, said: str) -> None:
    with patch("os.listdir", side_effect=error or os.listdir):
        (wheel,) = read_directory(tmp_path / "gone")
    assert wheel.fault == f"{tmp_path}/gone cannot be read: {said}"


def test_a_directory_that_is_named_and_not_there_is_told(place: Path) -> None:
    refused = load(place, LLMGW_PLUGINS="/no/such/place")["refused"]
    assert isinstance(refused, list)
    assert "/no/such/place cannot be read: No such file or directory; make" in refused[0]


def test_a_wheel_with_a_damaged_byte_is_refused(place: Path) -> None:
    wheel = a_wheel(place / DIRECTORY)
    data = bytearray(wheel.read_bytes())
    data[2000] ^= 0xFF
    wheel.write_bytes(data)
    assert "it is no whole wheel" in refusal(place)


BROKEN = {
    "gone": ("", "vllm = llmgw_engine_vllm.gone", "importing llmgw_engine_vllm.gone failed: ModuleNotFoundError: "),
    "raises": ("raise ValueError('two\\nlines')", "vllm = llmgw_engine_vllm", "failed: ValueError: two lines, so "),
    "exits": ("import sys; print('x'); sys.exit(3)", "vllm = llmgw_engine_vllm", "failed: SystemExit: 3, so "),
    "no object": ("", "vllm = llmgw_engine_vllm:gone", "importing llmgw_engine_vllm:gone failed: AttributeError: "),
}


@pytest.mark.parametrize(("code", "entry", "said"), BROKEN.values(), ids=BROKEN)
def test_a_wheel_that_does_not_import_is_refused_and_what_is_inside_goes_on(
    place: Path, code: str, entry: str, said: str
) -> None:
    wheel = a_wheel(place / DIRECTORY, entry_points=f"[llmgw.engines]\n{entry}\n", last=code)
    line = refusal(place)
    assert line.startswith(f"plugin {wheel.name} (llmgw-engine-vllm 0.2.0) refused: importing llmgw_engine_vllm")
    assert said in line
    assert line.endswith(
        f"so llmgw-engine-vllm 0.1.0 inside is used; remove {wheel}, or put another release of it there"
    )
    assert "\n" not in line


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_directory_that_others_may_write_to_is_not_trusted(place: Path, mode: int) -> None:
    a_wheel(place / DIRECTORY)
    (place / DIRECTORY).chmod(mode)
    assert f"others may write to {place / DIRECTORY}; chmod go-w {place / DIRECTORY}" in refusal(place)


def test_a_wheel_that_others_may_write_to_is_not_trusted(place: Path) -> None:
    wheel = a_wheel(place / DIRECTORY)
    wheel.chmod(0o666)
    assert f"others may write to {wheel}; chmod go-w {wheel}" in refusal(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_strangers_wheel_is_not_trusted_even_behind_a_link(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = a_wheel(tmp_path_factory.mktemp("stranger"))
    os.chown(stranger, 12345, 12345)
    (place / DIRECTORY / stranger.name).symlink_to(stranger)
    assert f"{stranger} belongs to user 12345, neither root nor who runs this; chown root {stranger}" in refusal(place)


def test_a_parent_that_others_may_write_to_is_as_bad_but_for_one_like_tmp(place: Path) -> None:
    wheel = a_wheel(place / DIRECTORY)
    assert find_distrust(wheel) == ("", "")
    place.chmod(0o777)
    assert find_distrust(wheel)[0] == f"others may write to {place}"
    place.chmod(0o1777)
    assert find_distrust(wheel) == ("", "")


def test_a_cache_that_cannot_be_written_is_a_refusal_with_the_way_out(place: Path) -> None:
    a_wheel(place / DIRECTORY)
    (place / "cache").write_text("a file where the directory should be")
    assert "run llmgw engines once as who may write there, or set LLMGW_CACHE" in refusal(place)


def test_what_was_unpacked_once_is_used_again_and_stays_for_those_who_run(place: Path) -> None:
    a_wheel(place / DIRECTORY)
    load(place)
    before = {each.name: each.stat().st_mtime_ns for each in (place / "cache" / "plugins").iterdir()}
    load(place)
    assert {each.name: each.stat().st_mtime_ns for each in (place / "cache" / "plugins").iterdir()} == before
    assert len(before) == 1


def test_outside_of_a_file_no_directory_is_looked_at(place: Path) -> None:
    a_wheel(place / DIRECTORY)
    assert put_before({"LLMGW_PLUGINS": str(place / DIRECTORY)}).wheels == {}


def test_a_working_tree_says_that_it_is_one() -> None:
    assert built_from("llmgw_core") == DEVELOPMENT
    assert built_from("no_such_package") == DEVELOPMENT

"""`llmgw weights`: a copy is proved whole, or each file that is not has its line."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from llmgw_core.cli.weights import _files, render_progress, render_weights
from llmgw_core.discovery import weight_tree
from llmgw_core.discovery.weight_tree import Tally
from llmgw_core.errors import LlmgwError

LLMGW = (sys.executable, "-c", "from llmgw_core.cli import main; main()", "weights")
TIMEOUT_S = 60


def run(*words: str | Path, wanted: int = 0) -> tuple[str, str]:
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [*LLMGW, *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    assert ended.returncode == wanted, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout, ended.stderr


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    (path / "sub").mkdir(parents=True)
    for name, count in (("a.bin", 9_000_000), ("b.bin", 17), ("sub/c.bin", 0), ("config.json", 0)):
        (path / name).write_bytes(os.urandom(count))
    return path


@pytest.fixture
def copy(model: Path) -> Path:
    run("manifest", model)
    return Path(shutil.copytree(model, model.with_name("copy")))


def test_a_manifest_has_the_sizes_and_digests_of_all_files(model: Path) -> None:
    stdout, _ = run("manifest", model)
    assert stdout == f"wrote {model}/llmgw-manifest.json: 4 files, 9,000,017 bytes\n"
    files = json.loads((model / "llmgw-manifest.json").read_text())["files"]
    digest = hashlib.sha256((model / "a.bin").read_bytes()).hexdigest()
    assert files["a.bin"] == {"bytes": 9_000_000, "sha256": digest}
    assert list(files) == ["a.bin", "b.bin", "config.json", "sub/c.bin"]


def test_the_same_weights_give_the_same_manifest_on_standard_output(model: Path) -> None:
    printed, _ = run("manifest", model, "--output", "-")
    assert sorted(path.name for path in model.iterdir()) == ["a.bin", "b.bin", "config.json", "sub"]
    assert run("manifest", model, "--output", "-", "--jobs", "1")[0] == printed
    assert json.loads(printed)["llmgw_manifest"] == 1


def test_a_whole_copy_is_proved_whole(copy: Path) -> None:
    assert run("verify", copy)[0] == (
        f"{copy} is whole: 4 files, 9,000,017 bytes, as {copy}/llmgw-manifest.json says\n"
    )
    assert run("verify", copy, "--quick")[0].endswith(" says, by their sizes\n")


def test_each_file_that_is_not_as_it_should_be_is_a_line(copy: Path) -> None:
    flip(copy / "a.bin", 8_999_999)
    (copy / "b.bin").write_bytes(b"short")
    (copy / "sub/c.bin").unlink()
    (copy / "extra.bin").touch()
    stdout, _ = run("verify", copy, wanted=1)
    changed, short, extra, missing, summary = stdout.splitlines()
    assert changed.startswith("a.bin has changed: its SHA-256 is ")
    assert short == "b.bin has 5 bytes, expected 17"
    assert extra == "extra.bin is extra: the manifest does not name it"
    assert missing == "sub/c.bin is missing"
    assert summary == f"{copy} is not whole: 3 of 4 files differ, and 1 is extra"
    summary = f"{copy} is not whole: 2 of 4 files differ, and 1 is extra"
    assert run("verify", copy, "--quick", wanted=1)[0].splitlines() == [short, extra, missing, summary]


def test_what_is_only_more_is_not_called_less(copy: Path) -> None:
    (copy / "extra.bin").touch()
    last = run("verify", copy, "--quick", wanted=1)[0].splitlines()[-1]
    assert last == f"{copy} is not what {copy}/llmgw-manifest.json says: 1 is extra"


def flip(path: Path, at: int) -> None:
    """One bit, the size stays."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_one_flipped_bit_is_found_and_not_by_sizes(copy: Path) -> None:
    flip(copy / "a.bin", 4_500_000)
    run("verify", copy, "--quick")
    _, summary = run("verify", copy, wanted=1)[0].splitlines()
    assert summary == f"{copy} is not whole: 1 of 4 files differs"


def test_a_manifest_from_elsewhere_may_be_named(copy: Path, tmp_path: Path) -> None:
    kept = (copy / "llmgw-manifest.json").rename(tmp_path / "kept.json")
    _, stderr = run("verify", copy, wanted=2)
    assert "there is no manifest" in stderr
    run("verify", copy, "--manifest", kept)


def test_a_file_that_was_named_by_mistake_is_not_to_be_removed(copy: Path) -> None:
    config = copy / "config.json"
    said = "is no manifest of weights, or cut short"
    assert run("verify", copy, "--manifest", config, wanted=2)[1] == f"llmgw: {config} {said}: name another\n"
    beside = copy / "llmgw-manifest.json"
    beside.write_text("{")
    assert run("verify", copy, wanted=2)[1] == f"llmgw: {beside} {said}: make it anew, or remove it\n"
    beside.write_text('{"llmgw_manifest": 2, "files": {}}')
    assert run("verify", copy, "--manifest", beside, wanted=2)[1].endswith(": upgrade llmgw\n")


def test_what_exists_is_replaced_only_when_asked_for(copy: Path) -> None:
    _, stderr = run("manifest", copy, wanted=2)
    assert "exists: `llmgw weights verify` compares with it; --force replaces it" in stderr
    run("manifest", copy, "--force")


def test_a_split_gguf_is_all_its_parts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"q-0000{n}-of-00002.gguf" for n in (1, 2))
    first.write_bytes(b"one")
    _, stderr = run("manifest", first, wanted=2)
    assert f"{second.name} is missing" in stderr
    second.write_bytes(b"two")
    (tmp_path / "other.gguf").touch()
    _, stderr = run("manifest", first)
    assert "warning: these weights are not whole" in stderr
    assert list(json.loads((tmp_path / f"{first.name}.llmgw-manifest.json").read_text())["files"]) == [
        first.name,
        second.name,
    ]
    run("verify", first)
    second.unlink()
    expected = f"{second.name} is missing\n{first} is not whole: 1 of 2 files differs\n"
    assert run("verify", first, wanted=1)[0] == expected


def test_links_into_a_hubs_cache_are_read(model: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "a.bin").symlink_to(model / "a.bin")
    (snapshot / "gone.bin").symlink_to(model / "gone.bin")
    _, stderr = run("manifest", snapshot, wanted=2)
    assert "gone.bin is missing" in stderr
    (snapshot / "gone.bin").unlink()
    assert "1 file, 9,000,000 bytes" in run("manifest", snapshot)[0]


@pytest.mark.parametrize("what", ["manifest", "verify"])
def test_what_is_not_there_cannot_be_checked(tmp_path: Path, what: str) -> None:
    _, stderr = run(what, tmp_path / "nowhere", wanted=2)
    assert "there is no" in stderr or "No such file" in stderr
    assert "manifest" not in stderr


def test_a_path_that_is_not_there_is_not_a_manifest_that_is_missed(tmp_path: Path) -> None:
    assert run("verify", tmp_path / "nosuch", wanted=2)[1] == f"llmgw: there is no {tmp_path}/nosuch\n"


def test_what_cannot_be_read_is_not_called_different(copy: Path) -> None:
    (copy / "b.bin").unlink()
    os.mkfifo(copy / "b.bin")
    stdout, stderr = run("verify", copy, wanted=2)
    assert (stdout, stderr) == ("", "llmgw: b.bin is not a regular file\n")


def test_a_tree_without_end_is_told(model: Path) -> None:
    with (
        patch.object(weight_tree, "files_of", side_effect=RecursionError),
        pytest.raises(LlmgwError, match="no model's"),
    ):
        _files(model)


def test_a_pipe_is_refused_and_not_waited_for(model: Path) -> None:
    os.mkfifo(model / "z.bin")
    _, stderr = run("manifest", model, wanted=2)
    assert stderr == f"llmgw: {model}: z.bin is not a regular file\n"


@pytest.mark.parametrize("what", ["manifest", "verify"])
def test_no_path_is_not_this_directory(what: str) -> None:
    assert "PATH is empty" in run(what, "", wanted=2)[1]


def test_a_manifest_that_cannot_be_written_leaves_nothing(model: Path) -> None:
    _, stderr = run("manifest", model, "--output", "/proc/manifest.json", wanted=2)
    assert "cannot write /proc/manifest.json" in stderr


def test_progress_is_one_short_line() -> None:
    tally = Tally(470_000_000_000, 96, done_bytes=12_000_000_000, done_files=2)
    assert render_progress(tally, 10) == "12.0 of 470.0 GB, 2 of 96 files, 1.20 GB/s, 382 s to go"
    assert render_progress(Tally(0, 0), 0) == "0.0 of 0.0 GB, 0 of 0 files, 0.00 GB/s"


def test_a_models_weights_are_a_row_for_each_node() -> None:
    node = {"node": "gpu-01", "state": "online", "weights": "not whole", "reason": "/m is missing"}
    assert render_weights({"model": "qwen", "source": "/m", "nodes": [node]}).splitlines() == [
        "qwen: /m",
        "NODE    STATE   WEIGHTS    REASON",
        "gpu-01  online  not whole  /m is missing",
    ]

"""What a manifest says, and what it says of a copy."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.discovery import weight_tree
from llmgw_core.discovery.manifest import Entry, Found, Manifest, NotAManifest, compare, parse_manifest, render_manifest
from llmgw_core.discovery.weight_tree import files_of, look
from llmgw_core.discovery.weights import look_at_weights
from llmgw_core.errors import LlmgwError

A, B = "aa" * 32, "bb" * 32
names = st.text(min_size=1).filter(lambda name: "\0" not in name and ".." not in name.split("/") and name[0] != "/")


@given(st.dictionaries(names, st.builds(Entry, st.integers(0, 2**60), st.just(A)), max_size=5))
def test_a_manifest_comes_back_as_it_was_written(files: dict[str, Entry]) -> None:
    assert parse_manifest(render_manifest(Manifest(files))).files == files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no manifest of weights"),
        ("{", "is no manifest of weights"),
        ("[]", "is no manifest of weights"),
        ('{"llmgw_manifest": 1, "files": {"a": 1}}', "is no manifest of weights"),
        ('{"llmgw_manifest": 2, "files": {}}', "is a manifest of version 2, and this llmgw reads 1"),
        (render_manifest(Manifest({"/etc/passwd": Entry(1, A)})), "names /etc/passwd, outside of the directory"),
        (render_manifest(Manifest({"a/../../b": Entry(1, A)})), "outside of the directory"),
        (render_manifest(Manifest({"a": Entry(-1, A)})), "nothing usable of the size of a"),
        (render_manifest(Manifest({"a": Entry(1, "A" * 64)})), "nothing usable of the digest of a"),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, said: str) -> None:
    with pytest.raises(NotAManifest, match=said):
        parse_manifest(text)


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused(text: bytes) -> None:
    with pytest.raises(NotAManifest):
        parse_manifest(text)


def test_each_file_that_differs_is_a_line_in_the_order_of_names() -> None:
    wanted = Manifest({name: Entry(4_976_698_592, A) for name in ("a", "b", "c", "d", "e")})
    size = 4_976_698_592
    found = {"a": Found(size, A), "b": Found(12), "c": Found(size, B), "e": Found(unread="is odd"), "x\n": Found(1)}
    compared = compare(wanted, found)
    assert compared.differences == (
        "b has 12 bytes, expected 4,976,698,592",
        f"c has changed: its SHA-256 is {B[:16]}…, expected {A[:16]}…",
        "d is missing",
        "'x\\n' is extra: the manifest does not name it",
    )
    assert compared.unread == ("e is odd",)


def test_links_of_a_hubs_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/0a1b"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / A).write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to(blobs / A)
    (snapshot / "gone.safetensors").symlink_to(blobs / B)
    (snapshot / "again").symlink_to(snapshot)
    found = {name: look(path) for name, path in files_of(snapshot).items()}
    assert found == {"gone.safetensors": Found(), "model.safetensors": Found(7)}


def test_what_tools_leave_beside_weights_is_left_out(tmp_path: Path) -> None:
    for name in (".cache/huggingface/x", ".git/HEAD", ".model.rsync", "llmgw-manifest.json", "sub/config.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(files_of(tmp_path)) == ["sub/config.json"]


def test_all_parts_of_a_split_file_are_its_files(tmp_path: Path) -> None:
    (tmp_path / "q-00001-of-00003.gguf").touch()
    (tmp_path / "other.gguf").touch()
    assert list(files_of(tmp_path / "q-00001-of-00003.gguf")) == [f"q-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert list(files_of(tmp_path / "other.gguf")) == ["other.gguf"]


# the agent's quick look


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    header = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"data")
    return tmp_path


def state(path: Path, files: dict[str, int], name: str = "llmgw-manifest.json") -> None:
    (path / name).write_text(render_manifest(Manifest({each: Entry(size, A) for each, size in files.items()})))


def sizes(path: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in path.iterdir()}


def test_weights_of_the_stated_sizes_are_fine_and_digests_are_not_looked_at(model: Path) -> None:
    state(model, sizes(model))
    assert look_at_weights(str(model)) == ""


def test_a_file_of_another_size_is_told_with_both(model: Path) -> None:
    """A manifest knows more than headers do: this one is whole by itself."""
    assert look_at_weights(str(model)) == ""
    state(model, sizes(model) | {"config.json": 4_976_698_592})
    expected = f"{model}: llmgw-manifest.json: config.json has 2 bytes, expected 4,976,698,592"
    assert look_at_weights(str(model)) == expected


def test_a_file_that_no_engine_would_miss_is_missed_by_its_manifest(model: Path) -> None:
    state(model, sizes(model) | {"tokenizer.json": 5, "vocab.json": 6})
    assert look_at_weights(str(model)).endswith("tokenizer.json is missing; 1 more of its files differ")


def test_what_the_manifest_does_not_name_is_no_trouble(model: Path) -> None:
    state(model, {"config.json": 2})
    assert look_at_weights(str(model)) == ""


@pytest.mark.parametrize("text", ["{", json.dumps({"llmgw_manifest": 9, "files": {}})])
def test_a_manifest_that_cannot_be_read_is_told(model: Path, text: str) -> None:
    (model / "llmgw-manifest.json").write_text(text)
    assert look_at_weights(str(model)).startswith(f"{model}: llmgw-manifest.json is ")


def test_a_file_has_a_manifest_of_its_own_or_its_directorys(model: Path) -> None:
    source = model / "model.safetensors"
    state(model, {"config.json": 99})
    assert look_at_weights(str(source)) == ""
    state(model, {"config.json": 99, source.name: 7})
    assert f"llmgw-manifest.json: {source.name} has" in look_at_weights(str(source))
    state(model, {source.name: source.stat().st_size}, f"{source.name}.llmgw-manifest.json")
    assert look_at_weights(str(source)) == ""


def test_directories_that_link_to_each_other_are_not_walked_on_every_way(tmp_path: Path) -> None:
    names = [f"d{n}" for n in range(9)]
    for name in names:
        (tmp_path / name).mkdir()
        for other in names:
            (tmp_path / name / other).symlink_to(tmp_path / other)
    with patch.object(weight_tree, "_MOST_DIRECTORIES", 100), pytest.raises(LlmgwError, match="it is no model's"):
        files_of(tmp_path)

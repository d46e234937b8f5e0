"""Models on disk, whole and broken, as real small files."""

import errno
import importlib.util
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.discovery.weight_file import cut_short
from llmgw_core.discovery.weights import look_at_weights

TINY_GGUF = Path(__file__).resolve().parents[3] / "shared/engines/tools/make_tiny_gguf.py"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n"
NAMES = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
F32, Q8_0 = 0, 8
UINT32, UINT16, STRING, ARRAY, FLOAT32 = 4, 2, 8, 9, 6


def safetensors(*, data: int = 24, header: bytes | None = None) -> bytes:
    if header is None:
        told = {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
        header = json.dumps({**told, "b": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(data)


SIZE = len(safetensors())
HEADER_END = SIZE - 24


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def gguf(
    *,
    entries: list[bytes] | None = None,
    kind: int = F32,
    version: int = 3,
    data: int = 512,
    offsets: tuple[int, ...] = (0, 256),
) -> bytes:
    """Two tensors of 32 × 2 elements, whose data begin at byte 160."""
    entries = entries or [text(b"general.name") + struct.pack("<I", STRING) + text(b"tiny")]
    tensors = [text(b"t") + struct.pack("<IQQIQ", 2, 32, 2, kind, offset) for offset in offsets]
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


def split(number: int, count: int) -> list[bytes]:
    told = {b"split.no": number, b"split.count": count}
    return [text(key) + struct.pack("<IH", UINT16, value) for key, value in told.items()]


def write(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def sharded() -> dict[str, bytes]:
    """A whole model of three files."""
    index = {"metadata": {"total_size": 72}, "weight_map": {f"t{n}": name for n, name in enumerate(NAMES)}}
    files = dict.fromkeys(NAMES, safetensors())
    return {**files, "model.safetensors.index.json": json.dumps(index).encode(), "config.json": b"{}"}


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name not in names}


def parts(count: int = 3) -> dict[str, bytes]:
    return {f"q-{n + 1:05}-of-{count:05}.gguf": gguf(entries=split(n, count)) for n in range(count)}


@pytest.mark.parametrize("source", ["", "org/name", "./here", "s3://bucket/x", "any/thing"])
def test_what_is_no_absolute_path_is_the_engines_to_fetch(source: str) -> None:
    assert look_at_weights(source) == ""


WHOLE: dict[str, dict[str, bytes]] = {
    "an index and its files": sharded(),
    "no index, counted files": without(sharded(), "model.safetensors.index.json"),
    "counted from 0": {"config.json": b"{}", **{f"m-{n:05}-of-00002.safetensors": safetensors() for n in (0, 1)}},
    "one file": {"model.safetensors": safetensors(), "config.json": b"{}"},
    "no tensors": {"model.safetensors": safetensors(header=b"{}  ", data=0), "config.json": b"{}"},
    "Mistral's layout": {"consolidated.safetensors": safetensors(), "params.json": b"{}"},
    "PyTorch's files": {"pytorch_model.bin": b"x", "training_args.bin": b"", "config.json": b"{}"},
    "PyTorch's index": {
        "pytorch_model.bin.index.json": b'{"weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}',
        "pytorch_model-00001-of-00001.bin": b"x",
        "config.json": b"{}",
    },
    "safetensors go first": {
        "model.safetensors": safetensors(),
        "pytorch_model.bin.index.json": b'{"weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}',
        "config.json": b"{}",
    },
    "old leftovers": {**sharded(), f"{NAMES[0]}.incomplete": b"", ".cache/huggingface/download/x.incomplete": b""},
    "a pipeline": {"model_index.json": b"{}", "vae/model.safetensors": b""},
}


@pytest.mark.parametrize("files", WHOLE.values(), ids=WHOLE)
def test_a_whole_directory_is_fine(tmp_path: Path, files: dict[str, bytes]) -> None:
    assert look_at_weights(str(write(tmp_path, files))) == ""


LINES: dict[str, tuple[dict[str, bytes], str]] = {
    "nothing": ({}, " is an empty directory"),
    "no weights": ({"README.md": b"", "config.json": b"{}"}, " holds no weights among its 2 files"),
    "a file of the index is missing": (without(sharded(), NAMES[1]), f": {NAMES[1]} is missing"),
    "two are": (
        without(sharded(), NAMES[0], NAMES[1]),
        f" has 2 of 4 files that are not whole: {NAMES[0]} is missing; {NAMES[1]} is missing",
    ),
    "all are, while they are fetched": (
        {**without(sharded(), *NAMES, "config.json"), ".cache/huggingface/download/ab.incomplete": b"x"},
        f" has 4 of 4 files that are not whole: {NAMES[0]} is missing; {NAMES[1]} is missing; "
        f"{NAMES[2]} is missing; …; a download is unfinished: ab.incomplete",
    ),
    "a counted file is missing": (
        without(sharded(), "model.safetensors.index.json", NAMES[2]),
        f": {NAMES[2]} is missing",
    ),
    "nothing but a download": (
        {"model.safetensors.part": b"x"},
        " holds no weights, but a download is unfinished: model.safetensors.part",
    ),
    "aria2 at work": (
        {**sharded(), f"{NAMES[0]}.aria2": b""},
        f": {NAMES[0]} is not downloaded to its end: an .aria2 file is beside it",
    ),
    "cut in the data": (
        {**sharded(), NAMES[2]: safetensors(data=23)},
        f": {NAMES[2]} is cut short: {SIZE - 1} of {SIZE} bytes",
    ),
    "cut in the header": (
        {**sharded(), NAMES[2]: safetensors()[:50]},
        f": {NAMES[2]} is cut short: 50 bytes, and its header alone ends at {HEADER_END}",
    ),
    "cut in the length": ({**sharded(), NAMES[2]: b"\x10\0"}, f": {NAMES[2]} is not a safetensors file"),
    "too long": (
        {**sharded(), NAMES[2]: safetensors(data=36)},
        f": {NAMES[2]} is damaged: 12 bytes longer than the {SIZE} of its header",
    ),
    "empty": ({**sharded(), NAMES[2]: b""}, f": {NAMES[2]} is empty"),
    "a page of HTML": ({**sharded(), NAMES[2]: b"<!DOCTYPE html><html>"}, f": {NAMES[2]} is not a safetensors file"),
    "a header beyond the format's": (
        {**sharded(), NAMES[2]: struct.pack("<Q", 2**40) + b"{"},
        f": {NAMES[2]} is not a safetensors file: its header would be 1,099,511,627,776 bytes long",
    ),
    "a header that is no JSON": (
        {**sharded(), NAMES[2]: safetensors(header=b"{nonsense")},
        f": {NAMES[2]} is damaged: its header cannot be read",
    ),
    "a header without offsets": (
        {**sharded(), NAMES[2]: safetensors(header=b'{"a": {"data_offsets": [0]}}')},
        f": {NAMES[2]} is damaged: its header cannot be read",
    ),
    "offsets that are no numbers": (
        {**sharded(), NAMES[2]: safetensors(header=b'{"a": {"data_offsets": [0, "8"]}}')},
        f": {NAMES[2]} is damaged: its header has offsets that are no numbers",
    ),
    "a pointer": (
        {**sharded(), NAMES[0]: POINTER},
        f": {NAMES[0]} is a git-LFS pointer, not the file: run git lfs pull",
    ),
    "a pointer for an index": (
        {**sharded(), "model.safetensors.index.json": POINTER},
        ": model.safetensors.index.json is a git-LFS pointer, not the file: run git lfs pull",
    ),
    "an index that is cut": (
        {**sharded(), "model.safetensors.index.json": b'{"weight_map": {"a'},
        ": model.safetensors.index.json is not JSON, or cut short",
    ),
    "an index without a map": (
        {**sharded(), "model.safetensors.index.json": b"[]"},
        ": model.safetensors.index.json names no file",
    ),
    "an index with an odd map": (
        {**sharded(), "model.safetensors.index.json": b'{"weight_map": {"a": 1}}'},
        ": model.safetensors.index.json has no weight_map with names of files",
    ),
    "an index that leads away": (
        {**sharded(), "model.safetensors.index.json": b'{"weight_map": {"a": "../x.safetensors"}}'},
        ": model.safetensors.index.json names ../x.safetensors, outside of the directory",
    ),
    "no config": (without(sharded(), "config.json"), ": config.json is missing"),
    "a config that is cut": ({**sharded(), "config.json": b'{"a":'}, ": config.json is not JSON, or cut short"),
    "PyTorch's pointer": (
        {"pytorch_model.bin": POINTER, "config.json": b"{}"},
        ": pytorch_model.bin is a git-LFS pointer, not the file: run git lfs pull",
    ),
    "a GGUF file": (
        {"q.gguf": gguf(), "config.json": b"{}"},
        " is a directory with one GGUF file: as the source, name the file: q.gguf",
    ),
    "GGUF files": (
        parts(),
        " is a directory with 3 GGUF files: as the source, name the file: q-00001-of-00003.gguf",
    ),
    "a hub's cache": (
        {"snapshots/ab/x": b"", "refs/main": b""},
        " is a hub's cache, not a model: name a directory below its snapshots",
    ),
}


@pytest.mark.parametrize(("files", "line"), LINES.values(), ids=LINES)
def test_what_is_wrong_with_a_directory_is_one_line(tmp_path: Path, files: dict[str, bytes], line: str) -> None:
    assert look_at_weights(str(write(tmp_path, files))) == f"{tmp_path}{line}"


GGUF: dict[str, tuple[bytes, str]] = {
    "whole": (gguf(), ""),
    "version 2": (gguf(version=2), ""),
    "padded behind": (gguf(data=544), ""),
    "its own alignment": (
        gguf(entries=[text(b"general.alignment") + struct.pack("<II", UINT32, 8)]),
        "",
    ),
    "an unknown type": (gguf(kind=9999, data=300), ""),
    "no tensors": (gguf(offsets=(), data=0), ""),
    "lists are skipped": (
        gguf(
            entries=[
                text(b"a") + struct.pack("<IIQ", ARRAY, STRING, 2) + text(b"x") + text(b"yy"),
                text(b"b") + struct.pack("<IIQ", ARRAY, FLOAT32, 3) + bytes(12),
            ]
        ),
        "",
    ),
    "lists of lists are not judged": (
        gguf(entries=[text(b"a") + struct.pack("<IIQ", ARRAY, ARRAY, 2)], data=0),
        "",
    ),
    "cut by one byte": (gguf(data=511), " is cut short: 671 of 672 bytes"),
    # Each of the 64 elements: 34 bytes for 32 of them.
    "Q8_0, whole": (gguf(kind=Q8_0, data=96 + 68, offsets=(0, 96)), ""),
    "Q8_0, cut": (gguf(kind=Q8_0, data=96 + 67, offsets=(0, 96)), " is cut short: 323 of 324 bytes"),
    "cut in the metadata": (gguf()[:40], " is cut short: 40 bytes, and its description of the tensors goes on"),
    "cut in the counts": (gguf()[:20], " is cut short: 20 bytes, and its description of the tensors goes on"),
    "other magic": (b"GGML" + bytes(100), " is not a GGUF file"),
    "a page of HTML": (b"<!DOCTYPE html>", " is not a GGUF file"),
    "version 1": (gguf(version=1), " is GGUF version 1; llama.cpp reads 2 and 3"),
    "big-endian": (
        b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        " is a big-endian GGUF file: it is for other machines",
    ),
    "a pointer": (POINTER, " is a git-LFS pointer, not the file: run git lfs pull"),
    "empty": (b"", " is empty"),
    "odd metadata": (
        gguf(entries=[text(b"a") + struct.pack("<I", 77)]),
        " is damaged: it has metadata of a type 77 that does not exist",
    ),
    "an odd list": (
        gguf(entries=[text(b"a") + struct.pack("<IIQ", ARRAY, 77, 1)]),
        " is damaged: it has a list of a type 77 that does not exist",
    ),
    "odd tensors": (
        struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + text(b"t") + struct.pack("<I", 5) + bytes(100),
        " is damaged: it has a tensor of 5 dimensions",
    ),
    "a part by another name": (
        gguf(entries=split(0, 3)),
        " is part 1 of 3, but its name does not end as that of such a part",
    ),
}


@pytest.mark.parametrize(("content", "line"), GGUF.values(), ids=GGUF)
def test_what_is_wrong_with_a_gguf_file_is_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    path = write(tmp_path, {"q.gguf": content}) / "q.gguf"
    assert look_at_weights(str(path)) == (f"{path}{line}" if line else "")


SPLIT: dict[str, tuple[dict[str, bytes], int, str]] = {
    "whole": (parts(), 1, ""),
    "not the first": (parts(), 2, " is part 2 of 3; name the first: q-00001-of-00003.gguf"),
    "one missing": (without(parts(), "q-00002-of-00003.gguf"), 1, ": q-00002-of-00003.gguf is missing of 3 parts"),
    "two missing": (
        without(parts(), "q-00002-of-00003.gguf", "q-00003-of-00003.gguf"),
        1,
        ": q-00002-of-00003.gguf is missing, and so is 1 more of 3 parts",
    ),
    "one cut": (
        {**parts(), "q-00003-of-00003.gguf": gguf(entries=split(2, 3), data=508)},
        1,
        ": q-00003-of-00003.gguf is cut short: 668 of 672 bytes",
    ),
    "one is something else": (
        {**parts(), "q-00003-of-00003.gguf": b"nothing"},
        1,
        ": q-00003-of-00003.gguf is not a GGUF file",
    ),
    "counted otherwise": (
        {**parts(), "q-00001-of-00003.gguf": gguf(entries=split(0, 4))},
        1,
        " is part 1 of 4, but its name does not end as that of such a part",
    ),
}


@pytest.mark.parametrize(("files", "number", "line"), SPLIT.values(), ids=SPLIT)
def test_all_parts_of_a_split_are_looked_at(tmp_path: Path, files: dict[str, bytes], number: int, line: str) -> None:
    path = write(tmp_path, files) / f"q-{number:05}-of-00003.gguf"
    expected = f"{tmp_path / 'q-00001-of-00003.gguf' if line[:1] == ':' else path}{line}" if line else ""
    assert look_at_weights(str(path)) == expected


def fifo(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path)


def nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (fifo, " is not a regular file"),
        (dangling, " is a link to nothing"),
        (loop, " cannot be read: Too many levels of symbolic links"),
        (nothing, " is missing"),
    ],
)
def test_what_is_no_file_is_said_at_once(tmp_path: Path, make: Callable[[Path], None], line: str) -> None:
    path = tmp_path / "q.gguf"
    make(path)
    assert look_at_weights(str(path)) == f"{path}{line}"

    directory = write(tmp_path / "model", without(sharded(), NAMES[0]))
    make(directory / NAMES[0])
    assert look_at_weights(str(directory)) == f"{directory}: {NAMES[0]}{line}"


def test_a_hubs_snapshot_of_links_is_followed(tmp_path: Path) -> None:
    blobs = write(tmp_path / "blobs", {str(number): content for number, content in enumerate(sharded().values())})
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for number, name in enumerate(sharded()):
        (snapshot / name).symlink_to(blobs / str(number))
    assert look_at_weights(str(snapshot)) == ""

    (blobs / "0").unlink()
    assert look_at_weights(str(snapshot)) == f"{snapshot}: {NAMES[0]} is a link to nothing"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("open", f" has 4 of 4 files that are not whole: {NAMES[0]} cannot be read: Permission denied; "),
        ("scandir", " cannot be read: Permission denied"),
        ("pread", f" has 4 of 4 files that are not whole: {NAMES[0]} cannot be read: Permission denied; "),
    ],
)
def test_what_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, line: str) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    directory = write(tmp_path, without(sharded(), "model.safetensors.index.json"))
    monkeypatch.setattr(os, call, refuse)  # a test that runs as root may read everything
    assert look_at_weights(str(directory)).startswith(f"{directory}{line}")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("/a\0b", "'/a\\x00b' cannot be a path"),
        ("/dev/null", "/dev/null is not a regular file"),
        ("/" + "x" * 300, "/" + "x" * 300 + " cannot be read: File name too long"),
        ("/etc/hostname/x", "/etc/hostname/x cannot be read: Not a directory"),
        ("/no\nwhere", "'/no\\nwhere' is missing"),
    ],
)
def test_odd_paths_are_one_line(source: str, line: str) -> None:
    assert look_at_weights(source) == line


def test_a_model_of_many_gigabytes_costs_no_reading(tmp_path: Path) -> None:
    told = {"a": {"dtype": "U8", "shape": [4_976_000_000], "data_offsets": [0, 4_976_000_000]}}
    whole = safetensors(header=json.dumps(told).encode(), data=0)
    path = write(tmp_path, {"model.safetensors": whole, "config.json": b"{}"}) / "model.safetensors"
    os.truncate(path, len(whole) + 4_976_000_000)  # sparse
    assert look_at_weights(str(tmp_path)) == ""

    os.truncate(path, 3_221_000_000)
    assert look_at_weights(str(tmp_path)) == f"{tmp_path}: model.safetensors is cut short: 3,221 of 4,976 MB"


def test_metadata_longer_than_one_reads_is_not_judged(tmp_path: Path) -> None:
    long = text(b"a") + struct.pack("<IIQ", ARRAY, FLOAT32, 2**23)
    path = write(tmp_path, {"q.gguf": struct.pack("<4sIQQ", b"GGUF", 3, 9, 9) + long}) / "q.gguf"
    os.truncate(path, 2**30)
    assert look_at_weights(str(path)) == ""


def test_amounts_are_told_so_that_they_differ() -> None:
    assert cut_short(3_221_225_472, 4_976_698_672) == "is cut short: 3,221 of 4,976 MB"
    assert cut_short(4_976_698_600, 4_976_698_672) == "is cut short: 4,976,698,600 of 4,976,698,672 bytes"


@given(content=st.binary(max_size=300), whole=st.sampled_from([safetensors(), gguf(), b""]), at=st.integers(0, 300))
def test_anything_is_answered(tmp_path_factory: pytest.TempPathFactory, content: bytes, whole: bytes, at: int) -> None:
    directory = tmp_path_factory.mktemp("any")
    mixed = whole[:at] + content + whole[at + len(content) :]
    for name in ("q.gguf", "model.safetensors", "config.json", "model.safetensors.index.json"):
        line = look_at_weights(str(write(directory, {name: mixed}) / name))
        assert "\n" not in line
        assert "\n" not in look_at_weights(str(directory))
    shutil.rmtree(directory)


@pytest.mark.skipif(not TINY_GGUF.exists(), reason=f"no {TINY_GGUF}")
def test_a_gguf_that_a_real_llama_server_loads_is_whole(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_tiny_gguf", TINY_GGUF)
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    path = tmp_path / "tiny.gguf"
    maker.main([str(path)])
    assert look_at_weights(str(path)) == ""

    os.truncate(path, path.stat().st_size - 1)
    assert look_at_weights(str(path)) == f"{path} is cut short: 538,495 of 538,496 bytes"

"""Whether a directory in Hugging Face's layout has all the files that its model needs.

In: a directory.  Out: nothing; raises `Unusable` for the first few of the files that are not whole.
Rule: what an engine would load is looked at, in the order in which vLLM and SGLang choose: safetensors by their index,
else every safetensors file, else PyTorch's.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from llmgw_core.discovery.safetensors import check_safetensors
from llmgw_core.discovery.weight_file import Unusable, WeightFile, opened, shown

_SAFETENSORS_INDEX = "model.safetensors.index.json"
_PYTORCH_INDEX = "pytorch_model.bin.index.json"
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".tensors")
# vllm, weight_utils.filter_files_not_needed_for_inference; and SGLang the same.
_NO_WEIGHTS = frozenset(("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"))
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.\w+)", re.DOTALL)
# huggingface_hub, wrappers of curl and wget, browsers, aria2.
_UNFINISHED = (".incomplete", ".part", ".partial", ".crdownload", ".aria2")
_MOST_NAMES = 20_000
_MOST_PARTS = 20_000
_MOST_JSON_BYTES = 32 * 1024 * 1024
"""The index of a model with 384 experts a layer is above 10 MiB."""
_MOST_TOLD = 3

Check = Callable[[WeightFile], object]


def check_directory(directory: Path) -> None:
    names = _names(directory)
    if "model_index.json" in names:  # a pipeline of several models (diffusers); their files are in subdirectories
        return
    files = {name: _check_for(name) for name in _wanted(directory, names)}
    if "params.json" not in names:  # Mistral's own layout has that instead
        files["config.json"] = _check_json
    found = {name: reason for name, check in files.items() if (reason := _trouble(directory / name, check))}
    if found:
        absent = "is missing" in found.values()
        raise _told(found, len(files), _unfinished(directory, names) if absent else "")


def _names(directory: Path) -> frozenset[str]:
    try:
        with os.scandir(directory) as entries:
            return frozenset(entry.name for entry in islice(entries, _MOST_NAMES))
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}") from error


def _wanted(directory: Path, names: frozenset[str]) -> list[str]:
    for index in (_SAFETENSORS_INDEX, _PYTORCH_INDEX):
        if index in names and (index == _SAFETENSORS_INDEX or not _ending(names, ".safetensors")):
            return _indexed(directory, index)
    found = _ending(names, ".safetensors") or [
        name for name in _ending(names, *_OTHER_WEIGHTS) if name not in _NO_WEIGHTS
    ]
    if not found:
        raise Unusable(_no_weights(directory, names))
    return _with_siblings(found)


def _ending(names: Iterable[str], *suffixes: str) -> list[str]:
    return sorted(name for name in names if name.endswith(suffixes))


def _with_siblings(names: Iterable[str]) -> list[str]:
    """These files, and those that must be there since a name counts them: `model-00002-of-00004.safetensors`."""
    wanted, seen = set(names), defaultdict[tuple[str, str, str], set[int]](set)
    for part in filter(None, map(_PART.fullmatch, wanted)):
        seen[part[1], part[3], part[4]].add(int(part[2]))
    for (prefix, count, suffix), numbers in seen.items():
        first = 0 if 0 in numbers else 1
        siblings = range(first, min(int(count), _MOST_PARTS) + first)
        wanted |= {f"{prefix}-{number:05}-of-{count}{suffix}" for number in siblings}
    return sorted(wanted)


def _indexed(directory: Path, index: str) -> list[str]:
    try:
        with opened(directory / index) as file:
            told = _read_json(file)
        files = told["weight_map"].values() if isinstance(told, dict) else ()
        names = sorted({str(PurePosixPath(name)) for name in files})
    except Unusable as error:
        raise Unusable(str(error), index) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise Unusable("has no weight_map with names of files", index) from error
    outside = [name for name in names if name.startswith("/") or ".." in PurePosixPath(name).parts]
    if outside or not names:
        raise Unusable(f"names {shown(outside[0])}, outside of the directory" if outside else "names no file", index)
    return names


def _no_weights(directory: Path, names: frozenset[str]) -> str:
    gguf = _ending(names, ".gguf")
    if gguf:
        first = next((name for name in gguf if "-00001-of-" in name), gguf[0])
        count = "one GGUF file" if len(gguf) == 1 else f"{len(gguf)} GGUF files"
        return f"is a directory with {count}: as the source, name the file: {shown(first)}"
    if "snapshots" in names:  # huggingface_hub's cache
        return "is a hub's cache, not a model: name a directory below its snapshots"
    if not names:
        return "is an empty directory"
    unfinished = _unfinished(directory, names)
    return f"holds no weights, but {unfinished}" if unfinished else f"holds no weights among its {len(names)} files"


def _check_for(name: str) -> Check:
    return check_safetensors if name.endswith(".safetensors") else lambda _: None


def _check_json(file: WeightFile) -> None:
    _read_json(file)


def _read_json(file: WeightFile) -> object:
    if file.size > _MOST_JSON_BYTES:
        raise Unusable(f"is {file.size:,} bytes long, more than the {_MOST_JSON_BYTES:,} that llmgw reads")
    try:
        told: object = json.loads(file.read(0, file.size))
    except (ValueError, RecursionError) as error:
        raise Unusable("is not JSON, or cut short") from error
    return told


def _trouble(path: Path, check: Check) -> str:
    try:
        with opened(path) as file:
            check(file)
    except Unusable as error:
        return str(error)
    return ""


def _unfinished(directory: Path, names: frozenset[str]) -> str:
    found = _ending(names, *_UNFINISHED)
    if not found and ".cache" in names:  # of `hf download --local-dir`
        with suppress(Unusable):
            found = _ending(_names(directory / ".cache" / "huggingface" / "download"), *_UNFINISHED)
    return f"a download is unfinished: {shown(found[0])}" if found else ""


def _told(found: dict[str, str], count: int, unfinished: str) -> Unusable:
    hint = f"; {unfinished}" if unfinished else ""
    (first, reason), *others = found.items()
    if not others:
        return Unusable(reason + hint, first)
    told = "; ".join(f"{shown(name)} {reason}" for name, reason in list(found.items())[:_MOST_TOLD])
    more = "; …" if len(found) > _MOST_TOLD else ""
    return Unusable(f"has {len(found)} of {count} files that are not whole: {told}{more}{hint}")

"""Whether a model's weights are on this node, whole, before an engine spends minutes on finding out.

In: a model's `source`.  Out: one line that says what is wrong, or nothing. Synchronous, and a network file system in
trouble may keep it waiting: call it in a thread that may be abandoned.
Rules: what is not known to be wrong is right; a manifest that lies beside the weights is believed, by its sizes;
headers are read, never tensors; it raises nothing.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from llmgw_core.discovery.gguf import Split, check_gguf
from llmgw_core.discovery.gguf_parts import PART, part_name
from llmgw_core.discovery.manifest_look import check_by_manifest
from llmgw_core.discovery.model_directory import check_directory
from llmgw_core.discovery.safetensors import check_safetensors
from llmgw_core.discovery.weight_file import Unusable, opened, shown, why_not


def look_at_weights(source: str) -> str:
    """Why the weights at `source` cannot be used; empty: they are whole, or a hub's, which the engine fetches."""
    if not source.startswith("/"):
        return ""
    try:
        _check(Path(source))
    except Unusable as error:
        where = f"{shown(source)}: {shown(error.member)}" if error.member else shown(source)
        return f"{where} {error}"
    return ""


def _check(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Unusable(why_not(path, error)) from error
    except ValueError as error:  # a NUL, or what cannot be encoded
        raise Unusable("cannot be a path") from error
    check_by_manifest(path, is_directory=stat.S_ISDIR(mode))
    if stat.S_ISDIR(mode):
        check_directory(path)
    elif path.suffix == ".safetensors":
        with opened(path) as file:
            check_safetensors(file)
    else:
        _check_gguf_parts(path)


def _check_gguf_parts(path: Path) -> None:
    named = PART.fullmatch(path.name)
    if named and int(named[2]) != 1:
        raise Unusable(f"is part {int(named[2])} of {int(named[3])}; name the first: {part_name(named, 1)}")
    said = _read_part(path)
    if said.count > 1 and (named is None or int(named[3]) != said.count):
        raise Unusable(f"is part {said.number + 1} of {said.count}, but its name does not end as that of such a part")
    if named:
        _check_other_parts(path.parent, named)


def _check_other_parts(directory: Path, named: re.Match[str]) -> None:
    others = [part_name(named, number) for number in range(2, int(named[3]) + 1)]
    # Listing them first: the names of all that are missing help more than the first one's.
    missing = [name for name in others if not os.path.lexists(directory / name)]
    if missing:
        more = f", and so {'is' if len(missing) == 2 else 'are'} {len(missing) - 1} more" if missing[1:] else ""
        raise Unusable(f"is missing{more} of {int(named[3])} parts", missing[0])
    for name in others:
        try:
            _read_part(directory / name)
        except Unusable as error:
            raise Unusable(str(error), name) from error


def _read_part(path: Path) -> Split:
    with opened(path) as file:
        return check_gguf(file)

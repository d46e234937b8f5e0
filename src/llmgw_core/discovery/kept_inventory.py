"""Keeps an inventory on disk, so that an agent's restart does not run a help of 15 s again.

In: a path in the agent's state directory.  Out: what was kept; nothing where it is missing, damaged or of another
format.
Rules: the file is replaced as a whole; a table that may be cut, or that is in doubt, is not kept, since what is kept of
a table tells nothing of doubts: its help is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from attrs import evolve
from cattrs import Converter
from cattrs.errors import BaseValidationError

from llmgw_core.discovery.engines import FORMAT, Inspected
from llmgw_core.engine import FlagTable
from llmgw_core.model.node import EngineFound
from llmgw_core.surface import parse_surface, render_surface


def write_inventory(path: str | os.PathLike[str], inventory: Sequence[Inspected]) -> None:
    """Raises OSError where it cannot be written: the inventory is as good without."""
    kept = {"format": FORMAT, "engines": [_render(each) for each in inventory]}
    beside = f"{os.fspath(path)}.new"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(kept, file)
    os.replace(beside, path)


def read_inventory(path: str | os.PathLike[str]) -> tuple[Inspected, ...]:
    """What `write_inventory` wrote; raises nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        if kept["format"] != FORMAT:
            return ()
        return tuple(map(_parse, kept["engines"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BaseValidationError, RecursionError):
        return ()


def _render(one: Inspected) -> dict[str, Any]:
    sure = all(map(_is_sure, one.tables.values()))
    return {
        "found": Converter().unstructure(one.found),
        "key": one.key if sure else "",
        "tables": {name: _render_table(table) for name, table in one.tables.items()} if sure else {},
        "executables": {name: list(command) for name, command in one.executables.items()},
        "warnings": list(one.warnings),
    }


def _is_sure(table: FlagTable) -> bool:
    return not table.cuts and not any(flag.doubt for flag in table.flags)


def _render_table(table: FlagTable) -> dict[str, Any]:
    return {**render_surface(table), "counted": table.counted}


def _parse(kept: dict[str, Any]) -> Inspected:
    return Inspected(
        found=Converter().structure(kept["found"], EngineFound),
        key=str(kept["key"]),
        tables={name: _parse_table(table) for name, table in kept["tables"].items()},
        executables={name: tuple(map(str, command)) for name, command in kept["executables"].items()},
        warnings=tuple(map(str, kept["warnings"])),
    )


def _parse_table(kept: dict[str, Any]) -> FlagTable:
    return evolve(parse_surface(kept), counted=bool(kept["counted"]))

"""Keeps an inventory on disk, so that an agent's restart does not run a help of 15 s again.

In: a path in the agent's state directory.  Out: what was kept; nothing where it is missing, damaged or of another
format.
Rule: the file is replaced as a whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from cattrs import Converter
from cattrs.errors import BaseValidationError

from llmgw_core.discovery.engines import FORMAT, Inspected


def write_inventory(path: str | os.PathLike[str], inventory: Sequence[Inspected]) -> None:
    """Raises OSError where it cannot be written: the inventory is as good without."""
    kept = {"format": FORMAT, "engines": Converter().unstructure(tuple(inventory))}
    beside = f"{os.fspath(path)}.new"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
    os.replace(beside, path)


def read_inventory(path: str | os.PathLike[str]) -> tuple[Inspected, ...]:
    """What `write_inventory` wrote; raises nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        if kept["format"] != FORMAT:
            return ()
        return tuple(Converter().structure(kept["engines"], list[Inspected]))
    except (OSError, ValueError, KeyError, TypeError, BaseValidationError, RecursionError):
        return ()

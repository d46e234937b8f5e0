"""The cells of one GPU's row in nvidia-smi's CSV.

In: texts by field.  Out: a `Gpu`, or `None` when the row names no GPU.  Pure; total over any text.
Rules: a value of the wrong type is unknown; so is a marker in a value's place (`[N/A]`, `[Not Supported]` in old
drivers), and one that tells of a fault makes the GPU's `trouble`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from llmgw_core.model.node import Gpu

_ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}
_MARKER = re.compile(r"\[.*\]|n/?a|err!|-+|unknown error|not (?:supported|available)|", re.IGNORECASE)
_HARMLESS = {
    "",
    "-",
    "n/a",
    "na",
    "not supported",
    "not available",
    "insufficient permissions",
    "not active",
    "unknown",
}
_WHOLE = re.compile(r"([0-9]{1,12})(?:\.[0-9]{1,6})?(?:\s*(?:MiB|%|C|W))?", re.IGNORECASE)
_TEXTS = {
    "uuid": re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]{7,95}"),
    "name": re.compile(r"[^\x00-\x1f\x7f]{1,200}"),
    "pci.bus_id": re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"),
    "driver_version": re.compile(r"[0-9][0-9A-Za-z.+_-]{0,40}"),
    "mig.mode.current": re.compile(r"Enabled|Disabled"),
}
_NUMBERS = ("index", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu")
_OWN_UUID = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9./_-]+")


def named(asked: str) -> str:
    """The field's usual name, for one of its other names (`gpu_name`)."""
    return _ALIASES.get(asked, asked)


def read_gpu(cells: Mapping[str, str]) -> Gpu | None:
    """The GPU of a row. Rows of a query without index and UUID are told by a number in one of their other fields."""
    index, uuid = _number(cells, "index"), _text(cells, "uuid")
    if "index" in cells or "uuid" in cells:
        is_gpu = index is not None or (uuid is not None and _OWN_UUID.fullmatch(uuid) is not None)
    else:
        is_gpu = any(_number(cells, name) is not None for name in _NUMBERS)
    return _gpu(cells, index, uuid) if is_gpu else None


def _gpu(cells: Mapping[str, str], index: int | None, uuid: str | None) -> Gpu:
    divided = {"Enabled": True, "Disabled": False}.get(_text(cells, "mig.mode.current") or "")
    return Gpu(
        index=index,
        uuid=uuid,
        name=_text(cells, "name"),
        memory_total_mib=_number(cells, "memory.total"),
        memory_used_mib=_number(cells, "memory.used"),
        utilization_percent=_number(cells, "utilization.gpu"),
        temperature_c=_number(cells, "temperature.gpu"),
        driver_version=_text(cells, "driver_version"),
        bus_id=_text(cells, "pci.bus_id"),
        mig=True if uuid and uuid.startswith("MIG-") else divided,
        trouble="; ".join(dict.fromkeys(filter(None, map(_fault, cells.values())))),
    )


def bad_cell(name: str, cell: str) -> bool:
    """Whether the cell holds neither a value of its field's type nor a marker. Fields that nobody reads hold any."""
    if _MARKER.fullmatch(cell):
        return False
    if name in _NUMBERS:
        return _WHOLE.fullmatch(cell) is None
    return name in _TEXTS and _TEXTS[name].fullmatch(cell) is None


def _fault(cell: str) -> str:
    """What a marker says of a fault (`GPU requires reset`, `ERR!`); nothing for a value or a harmless marker."""
    said = cell.strip("[] -")
    return said if _MARKER.fullmatch(cell) and said.lower() not in _HARMLESS else ""


def _number(cells: Mapping[str, str], name: str) -> int | None:
    found = _WHOLE.fullmatch(cells.get(name, ""))
    return int(found[1]) if found else None


def _text(cells: Mapping[str, str], name: str) -> str | None:
    cell = cells.get(name, "")
    return cell if not _MARKER.fullmatch(cell) and _TEXTS[name].fullmatch(cell) else None

"""The words of nvidia-smi: what to ask it, and what its answer says.

In: what it printed, the fields that it was asked for, how it ended.  Out: a `GpuReport`.  Pure; total over any text.
Rules: a line is a GPU only if it has a cell for each field and names its GPU; every other line is kept as the reason;
what cannot be read makes one field unknown, never 0, and never loses the GPU. Exit codes are not told apart: a driver
that differs from its library ends with 18, which no manual lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from signal import Signals

from attrs import frozen

from llmgw_core.discovery.gpu_cells import bad_cell, named, read_gpu
from llmgw_core.model.node import Found, Gpu, GpuReport

FIELD_SETS: tuple[tuple[str, ...], ...] = (
    (
        "index",
        "uuid",
        "pci.bus_id",
        "driver_version",
        "memory.total",
        "memory.used",
        "utilization.gpu",
        "temperature.gpu",
        "mig.mode.current",
        "name",
    ),
    ("index", "uuid", "pci.bus_id", "driver_version", "memory.total", "memory.used", "utilization.gpu", "name"),
    ("index", "uuid", "memory.total", "name"),
    ("index", "uuid", "name"),
)
"""What to ask, the largest first: the next one is for a driver that does not know a field of the one before."""

MOST_GPUS = 256
SHOWN_LINES = 6
"""Of complaints."""
SHOWN_CHARACTERS = 200
"""Of one of them."""

_REFUSED_FIELD = re.compile(r'Field "([^"\n]*)" is not a valid field to query')
_NO_DEVICES = re.compile(r"no devices (?:were )?found", re.IGNORECASE)
_WAYS_OUT = (
    (
        re.compile(r"Driver/library version mismatch", re.IGNORECASE),
        "driver/library mismatch: the driver was upgraded while the old one is loaded; reboot the node",
    ),
    (re.compile(r"couldn't communicate with the NVIDIA driver"), "the driver is not loaded"),
    (
        re.compile(r"Failed to initialize NVML: Unknown Error"),
        "in a container, its GPUs were taken from it (systemctl daemon-reload does that); start it again",
    ),
)


@frozen
class _Reading:
    gpus: tuple[Gpu, ...] = ()
    complaints: tuple[str, ...] = ()


def query(path: str, fields: Sequence[str]) -> tuple[str, ...]:
    """The command line that asks for these fields; with `=`, since old parsers take `--format csv` otherwise."""
    return (path, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")


def refused_field(text: str) -> str | None:
    """The field that this nvidia-smi does not know: then a smaller set is to be tried. It says so on either stream."""
    found = _REFUSED_FIELD.search(text)
    return found[1] if found else None


def read_gpus(
    text: str, fields: Sequence[str], *, code: int | None = 0, signal: int | None = None, stderr: str = ""
) -> GpuReport:
    """What the answer says of this node's GPUs."""
    died = signal if signal is not None else code - 128 if code is not None and 128 < code < 160 else None
    if died is not None:
        # What it printed until then may end anywhere.
        return GpuReport(Found.FAILED, reason=_reason((f"nvidia-smi died of {_signal_name(died)}",), ()))
    reading = _read_lines(text, fields)
    complaints = (*reading.complaints, *_lines(stderr))
    if reading.gpus:
        return GpuReport(Found.SOME, reading.gpus, _reason(_how(code) if code else (), complaints))
    if (not complaints and code == 0) or any(_NO_DEVICES.search(line) for line in complaints):
        return GpuReport(Found.NONE, reason=_reason((), complaints))
    return GpuReport(Found.FAILED, reason=_reason(_how(code), complaints or ("it printed nothing",)))


def _read_lines(text: str, fields: Sequence[str]) -> _Reading:
    gpus: list[Gpu] = []
    complaints: list[str] = []
    seen: set[str] = set()
    for line in _lines(text):
        cells = _cells(line, fields)
        if cells is not None and cells == [named(each) for each in fields]:
            continue
        gpu = read_gpu(dict(zip(map(named, fields), cells, strict=True))) if cells else None
        if gpu is None or cells is None:
            complaints.append(line)
        elif gpu.uuid and gpu.uuid in seen:
            complaints.append(f"{gpu.uuid} is listed twice")
        elif len(gpus) == MOST_GPUS:
            complaints.append(f"it lists more than {MOST_GPUS} GPUs")
        else:
            gpus.append(gpu)
            seen.add(gpu.uuid or "")
            complaints += _bad_cells(gpu, fields, cells)
    return _Reading(tuple(gpus), tuple(complaints))


def _cells(line: str, fields: Sequence[str]) -> list[str] | None:
    """One cell for each field, `None` when the line has not so many; commas beyond that are the name's.

    A header's cells are without their units: `memory.total [MiB]`.
    """
    cells = [cell.strip() for cell in line.split(",")]
    names = [named(each) for each in fields]
    more = len(cells) - len(names)
    if more > 0 and "name" in names:
        at = names.index("name")
        cells[at : at + more + 1] = [", ".join(cells[at : at + more + 1])]
    if len(cells) != len(names):
        return None
    as_header = [named(re.sub(r"\s*\[[^]]*\]$", "", cell)) for cell in cells]
    return as_header if as_header == names else cells


def _bad_cells(gpu: Gpu, fields: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    for name, cell in zip(map(named, fields), cells, strict=True):
        if bad_cell(name, cell):
            yield f"GPU {gpu.uuid if gpu.index is None else gpu.index}: {name} cannot be {cell!r}"


def _lines(text: str) -> list[str]:
    """The lines that are not blank, made fit to be shown."""
    shown = ("".join(char if char.isprintable() else " " for char in line).strip() for line in text.splitlines())
    return [line for line in shown if line]


def _how(code: int | None) -> tuple[str, ...]:
    return (f"nvidia-smi ended with exit code {code}",) if code else ("nvidia-smi listed no GPU",)


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _reason(led_by: Sequence[str], complaints: Sequence[str]) -> str:
    """On one line: how it failed, its own words, and the way out where one is known."""
    shown = [line[:SHOWN_CHARACTERS] for line in dict.fromkeys(complaints)]
    if len(shown) > SHOWN_LINES:
        shown = [*shown[:SHOWN_LINES], f"and {len(shown) - SHOWN_LINES} more"]
    said = " | ".join(shown)
    ways_out = [way for sign, way in _WAYS_OUT if sign.search(" ".join(complaints))]
    return "; ".join(filter(None, (": ".join(filter(None, (*led_by, said))), *ways_out)))

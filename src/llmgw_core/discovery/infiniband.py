"""Reads the InfiniBand ports of this node from its sysfs tree.

In: the tree's root (`--ib-root`).  Out: an `IbReport`, ports in natural order. Synchronous: a driver in trouble may
keep a reader waiting, so call it in a thread that may be abandoned.
Rules: no tree and no adapter is `NONE`, a tree that cannot be read is `FAILED`; a file that cannot be read makes one
field unknown, an adapter whose ports cannot be listed stays in the report with that trouble.
"""

from __future__ import annotations

from pathlib import Path

from llmgw_core.discovery.ib_port import ADAPTER_FILES, PORT_FILES, read_port
from llmgw_core.model.node import Found, IbPort, IbReport
from llmgw_core.model.replica import Hca
from llmgw_core.plan.fabric import natural

DEFAULT_ROOT = "/sys/class/infiniband"
FILE_LIMIT_BYTES = 4096
"""A file of sysfs is one page at most."""


def read_tree(root: str | Path = DEFAULT_ROOT) -> IbReport:
    """The adapters under `root`, each port of each."""
    try:
        adapters = sorted((each for each in Path(root).iterdir() if each.is_dir()), key=lambda each: natural(each.name))
    except FileNotFoundError:
        return IbReport(Found.NONE, reason=f"{root} does not exist")
    except OSError as error:
        return IbReport(Found.FAILED, reason=f"{root} cannot be read: {error.strerror}")
    ports = tuple(port for adapter in adapters for port in _read_adapter(adapter))
    return IbReport(Found.SOME, ports) if ports else IbReport(Found.NONE, reason=f"{root} lists no adapter")


def _read_adapter(adapter: Path) -> list[IbPort]:
    of_adapter = {name: _read(adapter / name) for name in ADAPTER_FILES}
    try:
        numbers = sorted(int(port.name) for port in (adapter / "ports").iterdir() if _is_number(port.name))
    except OSError as error:
        return [IbPort(Hca(adapter.name), trouble=f"its ports cannot be read: {error.strerror}")]
    if not numbers:
        return [IbPort(Hca(adapter.name), trouble="it lists no port")]
    return [read_port(Hca(adapter.name, number), {**of_adapter, **_read_port(adapter, number)}) for number in numbers]


def _read_port(adapter: Path, number: int) -> dict[str, str | None]:
    return {name: _read(adapter / "ports" / str(number) / name) for name in PORT_FILES}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 4


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(FILE_LIMIT_BYTES).decode("ascii", errors="replace")
    except OSError:
        return None

"""InfiniBand trees as of /sys/class/infiniband, for machines without adapters.

For tests and demonstrations. A tree is nested mappings, from names to the texts of files; `UNREADABLE` stands for a
file that is there and cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

UNREADABLE: Final = object()
"""Reading it fails, for root too (it is a directory)."""


def a_port(number: int = 1, **changes: Any) -> dict[str, Any]:
    """The files of an ACTIVE InfiniBand port; `gid` stands for `gids/0`, and `None` leaves a file out."""
    given = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "link_layer": "InfiniBand\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "lid": f"0x{number:x}\n",
        "sm_lid": "0x1\n",
        "gid": f"fe80:0000:0000:0000:a088:c203:00aa:{number:04x}\n",
        **changes,
    }
    gid = given.pop("gid")
    files = {name: text for name, text in given.items() if text is not None}
    return {**files, "gids": {} if gid is None else {"0": gid}}


def an_adapter(number: int = 1, ports: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """An adapter of one port, or of those given; `changes` are its own files."""
    own = {"node_guid": f"a088:c203:00aa:{number:04x}\n", "fw_ver": "28.39.1002\n", **changes}
    return {**own, "ports": {"1": a_port(number)} if ports is None else ports}


def write_tree(root: Path, adapters: Mapping[str, Any]) -> Path:
    """Write the adapters under `root`, which is made."""
    root.mkdir(parents=True, exist_ok=True)
    for name, inside in adapters.items():
        _write(root / name, inside)
    return root


def _write(path: Path, inside: Any) -> None:
    if isinstance(inside, Mapping):
        path.mkdir(parents=True, exist_ok=True)
        for name, each in inside.items():
            _write(path / name, each)
    elif inside is UNREADABLE:
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)  # a name such as `gids/0`
        path.write_text(inside, encoding="utf-8")

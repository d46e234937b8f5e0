"""The words of /sys/class/infiniband, and what they say of one port.

In: the texts of a port's files, `None` for one that could not be read.  Out: an `IbPort`.  Pure; total over any text.
Rules: only the link layer tells InfiniBand from RoCE, whatever the rate's words; zeros are no GUID, no LID and no
prefix; what is unknown is `None`, and no value is guessed from another file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import evolve

from llmgw_core.model.node import IbPort
from llmgw_core.model.replica import Hca

ADAPTER_FILES = ("node_guid",)
"""What is read of an adapter."""
PORT_FILES = ("state", "phys_state", "link_layer", "rate", "lid", "gids/0")
"""What is read of each of its ports."""
ACTIVE = "ACTIVE"
INFINIBAND = "InfiniBand"

_NUMBERED = re.compile(r"(?:[0-9]+\s*:\s*)?([A-Za-z][A-Za-z_ ]{0,40})")
_LID = re.compile(r"0x[0-9a-f]{1,8}|[0-9]{1,9}", re.IGNORECASE)
_PERMISSIVE_LID = 0xFFFF
_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}", re.IGNORECASE)
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}", re.IGNORECASE)
_WORDS = re.compile(r"[\x20-\x7e]{1,80}")


def read_port(hca: Hca, texts: Mapping[str, str | None]) -> IbPort:
    """The port, from the texts of `ADAPTER_FILES` and `PORT_FILES`."""
    given = {name: (text or "").strip() for name, text in texts.items()}
    prefix, port_guid = _halves(given.get("gids/0", ""))
    port = IbPort(
        hca=hca,
        state=_word(given.get("state", "")),
        physical_state=_word(given.get("phys_state", "")),
        link_layer=_matching(_WORDS, given.get("link_layer", "")),
        rate=_matching(_WORDS, given.get("rate", "")),
        lid=_lid(given.get("lid", "")),
        node_guid=_guid(given.get("node_guid", "")),
        port_guid=port_guid,
        subnet_prefix=prefix,
    )
    return evolve(port, trouble=_trouble(port, given))


def _trouble(port: IbPort, given: Mapping[str, str]) -> str:
    found = []
    if port.state is None:
        found.append("its state cannot be read")
    elif port.state != ACTIVE:
        found.append(f"{port.state} ({port.physical_state})" if port.physical_state else port.state)
    if port.link_layer is None:
        found.append("its link layer cannot be read")
    elif port.link_layer != INFINIBAND:
        found.append(f"{port.link_layer}, not InfiniBand")
    if _is_zero(given.get("node_guid", "")):
        found.append("no GUID, as a virtual function that nobody gave one")
    return "; ".join(found)


def _word(text: str) -> str | None:
    """`ACTIVE` of `4: ACTIVE`."""
    found = _NUMBERED.fullmatch(text)
    return found[1].strip() if found else None


def _matching(pattern: re.Pattern[str], text: str) -> str | None:
    return text if pattern.fullmatch(text) else None


def _lid(text: str) -> int | None:
    if not _LID.fullmatch(text):
        return None
    lid = int(text, 16 if text[:2].lower() == "0x" else 10)
    return lid if lid not in (0, _PERMISSIVE_LID) else None


def _guid(text: str) -> str | None:
    return text.lower() if _GUID.fullmatch(text) and not _is_zero(text) else None


def _halves(gid: str) -> tuple[str | None, str | None]:
    """The subnet prefix and the port's GUID."""
    if not _GID.fullmatch(gid) or _is_zero(gid):
        return None, None
    return _guid(gid[:19]), _guid(gid[20:])


def _is_zero(text: str) -> bool:
    return bool(text) and not text.strip("0:")

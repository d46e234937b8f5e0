"""The systemd unit of an agent: the packaged one, with the path of llmgw in it.  Pure, but for reading the package."""

from __future__ import annotations

import re
from importlib.resources import files

from llmgw_core.provision.awaiting import RELEASE

UNITS = ("llmgw-agent.service", "llmgw-control.service", "llmgw-gateway.service")
# systemd, basic/string-util.c: string_is_safe; and $ would begin a variable's name.
_NEVER = frozenset("\"'\\$")
_PLAIN = re.compile(r"/[A-Za-z0-9_@+:,./-]*")


def packaged_unit(name: str) -> str:
    return files("llmgw_core.provision").joinpath("units", name).read_text("utf-8")


def render_unit(unit: str, executable: str) -> str:
    """With another llmgw than the release's place."""
    return unit.replace(f"ExecStart={RELEASE} ", f"ExecStart={_quoted(executable)} ")


def executable_problem(executable: str) -> str:
    """Why it cannot stand in a unit; empty: it can."""
    if not executable.startswith("/"):
        return f"--command {executable!r}: expected an absolute path"
    if not executable.isprintable() or _NEVER & set(executable):
        return f"--command {executable!r}: systemd takes no quotes, no \\ and no $ in a program's path"
    return ""


def _quoted(executable: str) -> str:
    """systemd.syntax(7), QUOTING, and the specifiers of systemd.unit(5)."""
    if _PLAIN.fullmatch(executable):
        return executable
    return f'"{executable.replace("%", "%%")}"'

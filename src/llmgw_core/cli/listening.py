"""`[ADDRESS]:PORT` on a command line."""

from __future__ import annotations

import click

_PORT_DIGITS, _LAST_PORT = 5, 65535


def parse_place(option: str, text: str) -> tuple[str | None, int]:
    """An address, None for all of them, and a port."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()):
        raise click.UsageError(f"{option} {text!r}: write ADDRESS:PORT, or :PORT for all addresses")
    if len(port) > _PORT_DIGITS or int(port) > _LAST_PORT:
        raise click.UsageError(f"{option} {text!r}: the port is too large, the last one is {_LAST_PORT}")
    return host.strip("[]") or None, int(port)

"""Tables for people: columns as wide as their widest cell, two spaces between them."""

from __future__ import annotations

from collections.abc import Sequence

from llmgw_core.cli.printable import printable_text


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[printable_text(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )

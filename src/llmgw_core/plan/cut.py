"""Whether a flag that a help text does not have is gone from the engine, or only from the text.

In: the flags that were not found, the table, the known orders of options.  Out: those that the text may have
lost.  Pure.
Rule: in a text that shows signs of a cut, a flag is really gone only if every known order of the engine's options that
has it puts it between two options that the text documents. A run of missing ones up to an end of the text is a cut.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from llmgw_core.engine.flags import FlagTable


def maybe_lost(missing: Collection[str], table: FlagTable, orders: Sequence[FlagTable]) -> frozenset[str]:
    """Those of `missing` that the text may have lost; none where the text is whole."""
    if not table.cuts:
        return frozenset()
    return frozenset(name for name in missing if not _really_gone(name, table, orders))


def _really_gone(name: str, table: FlagTable, orders: Sequence[FlagTable]) -> bool:
    knowing = [order for order in orders if order.documents(name)]
    return bool(knowing) and all(_stands_between_documented(name, table, order) for order in knowing)


def _stands_between_documented(name: str, table: FlagTable, order: FlagTable) -> bool:
    flag = order.find(name)
    at = next(place for place, other in enumerate(order.flags) if other is flag)
    neighbours = order.flags[max(at - 1, 0) : at] + order.flags[at + 1 : at + 2]
    return len(neighbours) == 2 and all(any(map(table.documents, other.names)) for other in neighbours)

"""Whether a flag that a help text does not have is gone from the engine, or only from the text.

In: the flags that were not found, the table, the known orders of options.  Out: those that the text may have
lost.  Pure.
Rules: in a text that shows signs of a cut, or names options without defining them, a flag is really gone only if every
known order of the engine's options that has it puts it between two options that the text defines. A run of missing ones
up to an end of the text is a cut. In a text that shows no sign, a run of missing ones is a hole where the recorded
versions most like the text have them all; a single one between its neighbours is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from llmgw_core.engine.flags import Flag, FlagState, FlagTable


def maybe_lost(missing: Collection[str], table: FlagTable, orders: Sequence[FlagTable]) -> frozenset[str]:
    """Those of `missing` that the text may have lost; none where the text is whole."""
    if table.cuts or any(flag.state is FlagState.UNSTATED for flag in table.flags):
        return frozenset(name for name in missing if not _really_gone(name, table, orders))
    if table.counted or not missing:
        return frozenset()
    alike = _most_alike(table, orders)
    return frozenset(name for name in missing if alike and all(_is_in_a_hole(name, table, order) for order in alike))


def maybe_mixed(names: Collection[str], table: FlagTable, orders: Sequence[FlagTable]) -> frozenset[str]:
    """Those of `names` whose lines may go on with another option's: the option that should follow is not there."""
    alike = _most_alike(table, orders) if names else ()
    return frozenset(name for name in names if alike and all(_lacks_the_next(name, table, order) for order in alike))


def _lacks_the_next(name: str, table: FlagTable, order: FlagTable) -> bool:
    flag = order.find(name)
    if flag is None or flag is order.flags[-1]:
        return False
    return not any(_defines(table, other) for other in _neighbours(name, order)[-1].names)


def _really_gone(name: str, table: FlagTable, orders: Sequence[FlagTable]) -> bool:
    knowing = [order for order in orders if order.documents(name)]
    return bool(knowing) and all(_proves_gone(name, table, order) for order in knowing)


def _proves_gone(name: str, table: FlagTable, order: FlagTable) -> bool:
    flag = order.find(name)
    if flag and any(table.documents(other) and not _defines(table, other) for other in flag.names):
        # Another spelling of it is there without its definition, which would list this one.
        return False
    neighbours = _neighbours(name, order)
    return len(neighbours) == 2 and all(any(_defines(table, other) for other in flag.names) for flag in neighbours)


def _defines(table: FlagTable, name: str) -> bool:
    flag = table.find(name)
    return flag is not None and flag.is_defined


def _neighbours(name: str, order: FlagTable) -> tuple[Flag, ...]:
    """The options that stand before and after, as far as there are any."""
    flag = order.find(name)
    at = next(place for place, other in enumerate(order.flags) if other is flag)
    return order.flags[max(at - 1, 0) : at] + order.flags[at + 1 : at + 2]


def _most_alike(table: FlagTable, orders: Sequence[FlagTable]) -> Sequence[FlagTable]:
    """The order of which the text has a part; else it is of no known version, and the two most alike are its kin."""
    names = frozenset(table.names)
    ranked = sorted(orders, key=lambda order: _likeness(names, frozenset(order.names)), reverse=True)
    return ranked[:1] if ranked and names <= frozenset(ranked[0].names) else ranked[:2]


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def _is_in_a_hole(name: str, table: FlagTable, order: FlagTable) -> bool:
    flag = order.find(name)
    if flag is None or flag.state is FlagState.REMOVED:
        return False  # an option that is already listed as removed is expected to go
    return any(not any(map(table.documents, other.names)) for other in _neighbours(name, order))

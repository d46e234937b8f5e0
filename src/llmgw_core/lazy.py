"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_names(
    namespace: dict[str, object], homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], list[str]]:
    """A package's `__getattr__` and `__all__`, from the names that each module gives it."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = value = getattr(import_module(home_of[name]), name)
        return value

    return find, sorted(home_of)

"""Several waits of which the first that ends counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")


async def first(*waits: Callable[[], Awaitable[T]]) -> T:
    """The result of the first to end; the others are cancelled. What one raises is raised as it is."""
    results: list[T] = []
    raised: Exception | None = None

    async def run(wait: Callable[[], Awaitable[T]]) -> None:
        results.append(await wait())
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for wait in waits:
                nursery.start_soon(run, wait)
    except* Exception as group:
        raised = _inner(group)
    if raised is not None and not results:
        raise raised
    return results[0]


def _inner(group: BaseException) -> Exception:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    assert isinstance(group, Exception)  # noqa: S101 - `except* Exception` gives no others
    return group

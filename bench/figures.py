"""What was measured, and what it should be; a figure over its limit is marked."""

from __future__ import annotations

from attrs import define, field


@define
class Figures:
    over: list[str] = field(factory=list)

    def show(self, what: str, value: float, unit: str, goal: str = "", limit: float | None = None) -> None:
        """`limit` is the most that is allowed; the least, where the goal says `at least`."""
        bad = limit is not None and (value < limit if goal.startswith("at least") else value > limit)
        self.over += [what] if bad else []
        wanted = f"({goal}{', OVER' if bad else ''})" if goal else ""
        print(f"{what:<58} {value:9.2f} {unit:<12} {wanted}", flush=True)

"""Whether gateways still send requests to an attempt that is to go, or still have some there.

In: the gateways as they are seen, an attempt.  Out: whether it is held back, or let go, and what is worth telling.
Pure.
Rules: what is to go leaves the table first, and its nodes are told only when no gateway leads there any more and none
has requests left there; for requests it is held no longer than its profile says; a gateway that is silent, or takes no
table, is waited for as long as silence is borne, and then named; failures never wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve, field, frozen

from llmgw_core.model.deployment import Assignment
from llmgw_core.plan.world import Attempt, Happening, ObservedGateway, World

_NAMED = 3


@frozen
class Gateways:
    """All that may send requests somewhere, at one moment."""

    now: float = 0.0
    patience_s: float = 0.0
    """How long one that is silent is waited for."""
    seen: tuple[ObservedGateway, ...] = ()
    heeded: tuple[ObservedGateway, ...] = field(init=False)
    """Those that are waited for."""

    @heeded.default
    def _find_heeded(self) -> tuple[ObservedGateway, ...]:
        return tuple(each for each in self.seen if self._end_of_patience(each) > self.now)

    def know(self, assignment: Assignment) -> bool:
        """Whether every one that is waited for leads requests to it."""
        attempt = attempt_of(assignment)
        return all(each.routes is not None and attempt in each.routes for each in self.heeded)

    def depart(self, assignment: Assignment, why: str) -> Assignment:
        """It is to go, and takes no new requests; held back where gateways may send some there.

        What never was ready never stood in a table.
        """
        if assignment.ready_at is None:
            return evolve(assignment, stopping=why)
        held = evolve(assignment, stopping=why, held_since=self.now)
        return held if self.why_held(held) else evolve(held, held_since=None)

    def why_held(self, assignment: Assignment) -> str:
        """Why its nodes are not told to stop it yet; empty: they are."""
        if assignment.held_since is None:
            return ""
        attempt = attempt_of(assignment)
        leading = [each for each in self.heeded if _may_lead(each, attempt)]
        if leading:
            return f"{_named(leading)} may still send requests there"
        busy = [each for each in self.heeded if each.lingering.get(attempt)]
        return f"{_named(busy)} still has requests there" if busy and self.now < end_of_hold(assignment) else ""

    def let_go(self, assignment: Assignment) -> Assignment:
        """The same, with its nodes told as soon as nobody is waited for."""
        if assignment.held_since is None or self.why_held(assignment):
            return assignment
        return evolve(assignment, held_since=None)

    def times(self) -> Iterator[float]:
        """When one of them is waited for no more, as long as it is."""
        return (self._end_of_patience(each) for each in self.heeded if each.silent_since is not None)

    def _end_of_patience(self, gateway: ObservedGateway) -> float:
        return float("inf") if gateway.silent_since is None else gateway.silent_since + self.patience_s

    def passed_over(self, assignment: Assignment) -> Iterator[Happening]:
        """Whom its stop, which its nodes are told now, does not wait for although it might."""
        attempt = attempt_of(assignment)
        who = f"{attempt[0]}, generation {attempt[1]}, stops"
        for each in self.seen:
            left = each.lingering.get(attempt, 0)
            if each not in self.heeded and (left or _may_lead(each, attempt)):
                silent = f"has not been heard, or took no table, for {self.patience_s:g} s"
                may = "may still send requests there" if _may_lead(each, attempt) else f"had {left} requests left there"
                yield Happening("gateway not waited for", "", f"{who}: {each.name} {silent}, and {may}")
            elif left:
                told = f"still has {left} requests there after {in_flight_s(assignment):g} s"
                yield Happening("requests not waited for", "", f"{who}: {each.name} {told}")


NO_GATEWAYS = Gateways()


def gateways_of(world: World) -> Gateways:
    return Gateways(world.now, world.lost_after_s, world.gateways)


def attempt_of(assignment: Assignment) -> Attempt:
    return assignment.launch.replica, assignment.launch.generation


def is_told(assignment: Assignment) -> bool:
    """Whether its nodes are told to stop it, as was planned."""
    return bool(assignment.stopping) and assignment.held_since is None and not assignment.failed


def tell_stopping(assignment: Assignment) -> str:
    """`replaced, since gpu-01 drains; requests there end first`."""
    return f"{assignment.stopping}{'; requests there end first' if assignment.held_since is not None else ''}"


def in_flight_s(assignment: Assignment) -> float:
    return assignment.launch.offer.profile.health.in_flight_s


def end_of_hold(assignment: Assignment) -> float:
    """Until when requests that it has are waited for; 0 for one that is not held."""
    return 0.0 if assignment.held_since is None else assignment.held_since + in_flight_s(assignment)


def _may_lead(gateway: ObservedGateway, attempt: Attempt) -> bool:
    return gateway.routes is None or attempt in gateway.routes


def _named(gateways: Sequence[ObservedGateway]) -> str:
    names = [each.name for each in gateways]
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")

"""The states of an agent's link, at both its ends, and the numbering of reports.

Sans-IO: `hear` takes what arrived and gives what it means; what a state does not allow raises `OutOfTurn`, and nothing
has happened.

    control plane's end        hears                     then
    ------------------------   -----------------------   -----------------------------------------
    GREETING                   Hello                     WAITING, says Welcome; or CLOSED, says Refused
    WAITING                    Report (the snapshot)     LIVE
    LIVE                       Report, Heartbeat, …      LIVE; commands may be said

    agent's end                hears                     then
    ------------------------   -----------------------   -----------------------------------------
    GREETING (has said Hello)  Welcome                   LIVE, says its unacknowledged reports, or one
    GREETING                   Refused                   CLOSED
    LIVE                       Acknowledged, commands    LIVE
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from attrs import define, field

from llmgw_core.errors import LlmgwError
from llmgw_core.model.node import NodeFacts
from llmgw_core.wire.message import SPOKEN, Acknowledged, Hello, Message, Refused, Report, Unknown, Welcome


class OutOfTurn(LlmgwError):
    """A message that this state of the link does not allow."""


class LinkState(Enum):
    GREETING = "greeting"
    WAITING = "waiting for the snapshot"
    LIVE = "live"
    CLOSED = "closed"


def why_not_spoken(hello: Hello) -> str:
    """Why this release cannot talk to the peer; empty when it can."""
    if hello.protocol in SPOKEN:
        return ""
    older = "older" if hello.protocol < min(SPOKEN) else "newer"
    spoken = ", ".join(map(str, SPOKEN))
    release = hello.version or "unknown"
    return (
        f"{hello.name} refused: it speaks protocol {hello.protocol} (release {release}), {older} than this control "
        f"plane, which speaks {spoken}"
    )


@define
class ControlEnd:
    """The control plane's end of one agent's link."""

    stored: Callable[[Hello], int]
    """The number of the last report of that instance that is stored; 0 for none."""
    state: LinkState = LinkState.GREETING
    _heard: int = 0

    def hear(self, message: Message | Unknown) -> Report | None:
        """The report to store, if that is what arrived: new ones only, each once."""
        if isinstance(message, Unknown):
            return None
        if self.state in (LinkState.GREETING, LinkState.CLOSED):
            raise OutOfTurn(f"{type(message).__name__} before the greeting")
        if not isinstance(message, Report):
            if self.state is LinkState.WAITING:
                raise OutOfTurn(f"{type(message).__name__} before the snapshot")
            return None
        self.state = LinkState.LIVE
        if message.number <= self._heard:
            return None
        self._heard = message.number
        return message

    def greet(self, message: Message | Unknown, heartbeat_s: float) -> Welcome | Refused:
        """The answer to the first message."""
        if self.state is not LinkState.GREETING or not isinstance(message, Hello):
            raise OutOfTurn(f"{type(message).__name__} in place of a Hello")
        reason = why_not_spoken(message)
        if reason:
            self.state = LinkState.CLOSED
            return Refused(reason)
        self.state = LinkState.WAITING
        self._heard = self.stored(message)
        return Welcome(message.protocol, heartbeat_s, self._heard)


@define
class AgentEnd:
    """The agent's end, over all the links that it has one after the other: reports outlive a link."""

    state: LinkState = LinkState.GREETING
    _number: int = 0
    _unacknowledged: dict[int, Report] = field(factory=dict)

    def connect(self) -> None:
        """A new link begins."""
        self.state = LinkState.GREETING

    def report(self, facts: NodeFacts) -> Report:
        """A numbered report, kept until it is acknowledged. Say it if the link is live; else `hear` gives it later."""
        self._number += 1
        made = Report(self._number, facts)
        self._unacknowledged[made.number] = made
        return made

    def hear(self, message: Message | Unknown) -> tuple[Report, ...]:
        """What is to be said in answer: after the Welcome, the reports that were not acknowledged."""
        match message:
            case Welcome() if self.state is LinkState.GREETING:
                self.state = LinkState.LIVE
                self._forget(message.acknowledged)
                return tuple(self._unacknowledged.values())
            case Refused():
                self.state = LinkState.CLOSED
            case _ if self.state is not LinkState.LIVE:
                raise OutOfTurn(f"{type(message).__name__} before the Welcome")
            case Acknowledged():
                self._forget(message.number)
            case _:
                pass
        return ()

    def _forget(self, acknowledged: int) -> None:
        # The newest report stays: it is the next link's snapshot, and a control plane that lost its disk needs it.
        self._unacknowledged = {
            number: report
            for number, report in self._unacknowledged.items()
            if number > acknowledged or number == self._number
        }

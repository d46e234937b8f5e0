"""The link's two ends: what each state allows, and that each report is stored once, in order, over any links."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmgw_core.testing.made_fleet import some_facts
from llmgw_core.wire.message import (
    Acknowledged,
    CheckEngine,
    Heartbeat,
    HeartbeatSeen,
    Hello,
    Message,
    Refused,
    Report,
    Unknown,
    Welcome,
)
from llmgw_core.wire.session import AgentEnd, ControlEnd, LinkState, OutOfTurn, why_not_spoken

HELLO = Hello(1, "gpu1", "0.1.0", "i1")
REPORT = Report(3, some_facts())


def control_end(state: LinkState, stored: int = 0) -> ControlEnd:
    end = ControlEnd(lambda hello: stored)
    if state is LinkState.CLOSED:
        end.greet(Hello(0, "gpu1"), 5.0)
    elif state is not LinkState.GREETING:
        end.greet(HELLO, 5.0)
    if state is LinkState.LIVE:
        end.hear(Report(stored + 1, some_facts()))
    assert end.state is state
    return end


# the control plane's end


def test_a_greeting_is_answered_with_what_is_stored() -> None:
    end = ControlEnd({HELLO: 7}.__getitem__)
    assert end.greet(HELLO, 5.0) == Welcome(1, 5.0, 7)
    assert end.state is LinkState.WAITING


@pytest.mark.parametrize("message", [Heartbeat(1), REPORT, Unknown("Sing"), Welcome(1, 5.0)])
def test_only_a_hello_greets(message: Message | Unknown) -> None:
    end = control_end(LinkState.GREETING)
    with pytest.raises(OutOfTurn, match=f"^{type(message).__name__} in place of a Hello$"):
        end.greet(message, 5.0)
    assert end.state is LinkState.GREETING


@pytest.mark.parametrize("state", [LinkState.WAITING, LinkState.LIVE, LinkState.CLOSED])
def test_one_greets_once(state: LinkState) -> None:
    end = control_end(state)
    with pytest.raises(OutOfTurn):
        end.greet(HELLO, 5.0)
    assert end.state is state


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (LinkState.GREETING, REPORT),
        (LinkState.GREETING, Heartbeat(1)),
        (LinkState.CLOSED, REPORT),
        (LinkState.WAITING, Heartbeat(1)),
        (LinkState.WAITING, HELLO),
    ],
)
def test_what_a_state_does_not_allow_changes_nothing(state: LinkState, message: Message) -> None:
    end = control_end(state)
    with pytest.raises(OutOfTurn):
        end.hear(message)
    assert end.state is state


@pytest.mark.parametrize("state", [*LinkState])
def test_unknown_kinds_are_passed_over_in_every_state(state: LinkState) -> None:
    end = control_end(state)
    assert end.hear(Unknown("Sing")) is None
    assert end.state is state


@pytest.mark.parametrize("message", [Heartbeat(1), HELLO, Acknowledged(1)])
def test_what_is_no_report_is_not_stored(message: Message) -> None:
    assert control_end(LinkState.LIVE).hear(message) is None


@pytest.mark.parametrize(("stored", "number", "new"), [(0, 1, True), (7, 7, False), (7, 3, False), (7, 8, True)])
def test_a_report_that_is_stored_is_not_stored_again_and_makes_the_link_live(
    stored: int, number: int, new: bool
) -> None:
    end = control_end(LinkState.WAITING, stored)
    report = Report(number, some_facts())
    assert end.hear(report) == (report if new else None)
    assert end.state is LinkState.LIVE
    assert end.hear(report) is None


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        (1, ""),
        (0, "gpu1 refused: it speaks protocol 0 (release 0.1.0), older than this control plane, which speaks 1"),
        (2, "gpu1 refused: it speaks protocol 2 (release 0.1.0), newer than this control plane, which speaks 1"),
    ],
)
def test_what_is_spoken(protocol: int, said: str) -> None:
    assert why_not_spoken(Hello(protocol, "gpu1", "0.1.0")) == said


# the agent's end


def test_after_the_welcome_it_says_what_is_not_acknowledged() -> None:
    end = AgentEnd()
    reports = [end.report(some_facts(agent_version=str(number))) for number in range(3)]
    assert [report.number for report in reports] == [1, 2, 3]
    assert end.hear(Welcome(1, 5.0, 1)) == tuple(reports[1:])
    assert end.state is LinkState.LIVE


def test_the_newest_report_is_said_on_each_link_although_it_is_acknowledged() -> None:
    end = AgentEnd()
    report = end.report(some_facts())
    for _ in range(2):
        end.connect()
        assert end.hear(Welcome(1, 5.0, 1)) == (report,)


def test_a_control_plane_that_lost_its_disk_gets_the_newest() -> None:
    end = AgentEnd()
    end.report(some_facts())
    newest = end.report(some_facts(agent_version="2"))
    end.connect()
    end.hear(Welcome(1, 5.0, 2))
    end.connect()
    assert end.hear(Welcome(1, 5.0, 0)) == (newest,)


@pytest.mark.parametrize("message", [Acknowledged(1), HeartbeatSeen(1), CheckEngine(1, "vllm"), Unknown("Sing"), HELLO])
def test_before_the_welcome_nothing_else_is_heard(message: Message | Unknown) -> None:
    end = AgentEnd()
    with pytest.raises(OutOfTurn):
        end.hear(message)
    assert end.state is LinkState.GREETING


@pytest.mark.parametrize("welcomed", [True, False])
def test_a_refusal_closes(welcomed: bool) -> None:
    end = AgentEnd()
    if welcomed:
        end.hear(Welcome(1, 5.0))
    assert end.hear(Refused("no")) == ()
    assert end.state is LinkState.CLOSED
    with pytest.raises(OutOfTurn):
        end.hear(Acknowledged(1))


def test_a_live_link_takes_what_it_does_not_know() -> None:
    end = AgentEnd()
    end.hear(Welcome(1, 5.0))
    for message in (Unknown("Sing"), HeartbeatSeen(1), CheckEngine(1, "vllm")):
        assert end.hear(message) == ()
    assert end.state is LinkState.LIVE


# both, over links that are cut anywhere


class Links(RuleBasedStateMachine):
    """An agent that reports, a control plane that stores, and a link whose both directions are cut at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = AgentEnd()
        self.control: ControlEnd | None = None
        self.made: list[int] = []
        self.stored: list[int] = []
        self.acknowledged = 0
        self.up: list[Message] = []
        self.down: list[Message] = []

    @rule()
    def connect(self) -> None:
        self.agent.connect()
        self.control = ControlEnd(lambda hello: max(self.stored, default=0))
        self.up, self.down = [HELLO], []

    @rule()
    def restart_control(self) -> None:
        """What was in memory and on the way is lost; what was stored is not."""
        self.control = None
        self.up, self.down = [], []

    @rule()
    def report(self) -> None:
        made = self.agent.report(some_facts(agent_version=str(len(self.made))))
        self.made.append(made.number)
        if self.agent.state is LinkState.LIVE and self.control is not None:
            self.up.append(made)

    @precondition(lambda self: self.control is not None and self.up)
    @rule(stores=st.booleans())
    def control_hears(self, stores: bool) -> None:
        message = self.up.pop(0)
        assert self.control is not None
        if isinstance(message, Hello):
            self.down.append(self.control.greet(message, 5.0))
            return
        assert isinstance(message, Report)
        report = self.control.hear(message)
        if report is not None and not stores:
            self.restart_control()  # a full disk: the link is closed, and nothing is acknowledged
            return
        if report is not None:
            self.stored.append(report.number)
        self.down.append(Acknowledged(message.number))

    @precondition(lambda self: self.control is not None and self.down)
    @rule()
    def agent_hears(self) -> None:
        message = self.down.pop(0)
        if isinstance(message, Acknowledged):
            self.acknowledged = max(self.acknowledged, message.number)
        self.up += self.agent.hear(message)

    @invariant()
    def nothing_is_stored_twice_or_out_of_order_or_left_out(self) -> None:
        assert self.stored == list(range(1, len(self.stored) + 1))

    @invariant()
    def nothing_that_was_acknowledged_is_lost(self) -> None:
        assert self.acknowledged <= max(self.stored, default=0)

    def teardown(self) -> None:
        """Over one link that holds, everything arrives."""
        self.connect()
        while self.up or self.down:
            self.control_hears(stores=True) if self.up else self.agent_hears()
        assert self.stored == self.made


TestLinks = Links.TestCase
TestLinks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 9))
def test_reports_in_any_order_are_stored_at_most_once_each(numbers: list[int], stored: int) -> None:
    end = control_end(LinkState.WAITING, stored)
    found = [report.number for number in numbers if (report := end.hear(Report(number, some_facts())))]
    assert found == sorted(set(found))
    assert all(number > stored for number in found)

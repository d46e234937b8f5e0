"""The sockets of one process, in rounds: what is written, and what is closed, when."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
from attrs import define, field

from llmgw_core.gateway import flow as flow_module
from llmgw_core.gateway.flow import Flow
from llmgw_core.gateway.poller import MOST_UNSENT, READ, Poller
from llmgw_core.testing.scripted_engine import DEADLINE_S


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.setblocking(False)
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
async def test_what_is_closed_outside_a_round_is_closed_at_once(
    pair: tuple[socket.socket, socket.socket], portable: bool
) -> None:
    one, other = pair
    poller = Poller(portable=portable)
    poller.watch(one, 1, lambda _: None)
    poller.close(one)
    assert other.recv(1) == b""
    poller.shut()


@pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
async def test_no_handler_is_called_for_what_another_has_closed(portable: bool) -> None:
    poller = Poller(portable=portable)
    pairs = [socket.socketpair() for _ in range(2)]
    called = []

    def handle(which: int) -> None:
        called.append(which)
        for one, _ in pairs:
            poller.close(one)
            assert one.fileno() >= 0, "its number could mean another socket in this round"

    for at, (one, other) in enumerate(pairs):
        poller.watch(one, 1, lambda _, at=at: handle(at))  # type: ignore[misc]
        other.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.fail_after(DEADLINE_S):
            while pairs[0][0].fileno() >= 0:  # noqa: ASYNC110 - callbacks know no events
                await trio.sleep(0.002)
        nursery.cancel_scope.cancel()
    assert len(called) == 1
    for _, other in pairs:
        other.close()
    poller.shut()


class Told(Flow):
    """Does what it is told when something arrives."""

    def __init__(self, poller: Poller, connection: socket.socket) -> None:
        super().__init__(poller, connection, READ)
        self.told: Callable[[], None] = lambda: None

    def received(self, data: bytes) -> None:
        self.told()


@define
class Driven:
    poller: Poller
    sockets: list[socket.socket] = field(factory=list)

    def connect(self, many: int) -> tuple[list[Told], list[socket.socket]]:
        pairs = [socket.socketpair() for _ in range(many)]
        self.sockets += [each for pair in pairs for each in pair]
        for each in self.sockets:
            each.setblocking(False)
        return [Told(self.poller, one) for one, _ in pairs], [other for _, other in pairs]

    async def until(self, seen: Callable[[], bool]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.poller.run)
            with trio.fail_after(DEADLINE_S):
                while not seen():  # noqa: ASYNC110 - callbacks know no events
                    await trio.sleep(0.002)
            nursery.cancel_scope.cancel()


@pytest.fixture(params=[False, True], ids=["epoll", "poll"], name="driven")
def _driven(request: pytest.FixtureRequest) -> Iterator[Driven]:
    made = Driven(Poller(portable=request.param))
    yield made
    made.poller.shut()
    for each in made.sockets:
        each.close()


def unread(peer: socket.socket) -> int:
    """Bytes that wait there."""
    try:
        return len(peer.recv(1000, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


async def test_what_is_written_in_a_round_is_sent_together_after_it_or_once_there_is_enough(driven: Driven) -> None:
    many = MOST_UNSENT + 2
    flows, peers = driven.connect(many)
    sent: list[int] = []

    def write(flow: Told) -> None:
        sent.append(sum(map(unread, peers)))
        flow.write(b"a")
        flow.write(b"b")

    for flow, peer in zip(flows, peers, strict=True):
        flow.told = partial(write, flow)
        peer.send(b"x")
    await driven.until(lambda: sum(map(unread, peers)) == 2 * many)
    assert sent == [0] * MOST_UNSENT + [2 * MOST_UNSENT] * 2
    assert [peer.recv(9) for peer in peers] == [b"ab"] * many


@pytest.mark.parametrize("end", ["reset", "ended", "close_when_sent"])
async def test_what_was_written_goes_out_before_a_connection_ends(driven: Driven, end: str) -> None:
    (asking, answered), (asker, reader) = driven.connect(2)

    def answer() -> None:
        answered.write(b"the end")
        getattr(answered, end)()

    asking.told = answer
    asker.send(b"x")
    await driven.until(lambda: not answered.is_open)
    assert (reader.recv(100), reader.recv(100)) == (b"the end", b"")


@pytest.mark.parametrize("end", ["reset", "ended", "close_when_sent"])
async def test_nothing_follows_what_goes_out_at_an_end(
    driven: Driven, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next answer of a connection would stand within one that was broken off."""
    monkeypatch.setattr(flow_module, "FULL_BYTES", 3)
    (asking, answered), (asker, reader) = driven.connect(2)
    answered.drained = lambda: answered.write(b" and more")  # type: ignore[method-assign]

    def answer() -> None:
        answered.write(b"a part")
        getattr(answered, end)()

    asking.told = answer
    asker.send(b"x")
    await driven.until(lambda: not answered.is_open)
    assert (reader.recv(100), reader.recv(100)) == (b"a part", b"")


async def test_one_that_is_found_lost_at_the_end_of_a_round_lets_another_write(driven: Driven) -> None:
    (asking, broken, other), (asker, gone, reader) = driven.connect(3)

    def write() -> None:
        gone.close()
        broken.write(b"nobody reads this")

    asking.told = write
    broken.lost = lambda: other.write(b"it is lost")  # type: ignore[method-assign]
    asker.send(b"x")
    await driven.until(lambda: unread(reader) > 0)
    assert reader.recv(100) == b"it is lost"


async def test_a_fault_in_sending_costs_that_one_connection(driven: Driven, caplog: pytest.LogCaptureFixture) -> None:
    (asking, faulty, other), (asker, _, reader) = driven.connect(3)

    def fail(_: object) -> int:
        raise RuntimeError("unforeseen")

    def write() -> None:
        faulty.write(b"a")
        other.write(b"b")

    faulty._send = fail
    asking.told = write
    asker.send(b"x")
    await driven.until(lambda: unread(reader) > 0)
    assert reader.recv(100) == b"b"
    assert not faulty.is_open
    assert "unforeseen" in caplog.text

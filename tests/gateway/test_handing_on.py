"""What a gateway says that it has taken, and what lingers, while tables are on their way to its workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from llmgw_core.gateway.board import ATTEMPTS, Board, attempt_cell
from llmgw_core.gateway.place import Places
from llmgw_core.gateway.route_file import ROUTE_FILE, BadRouteFile, Routed, parse_routes, render_routes
from llmgw_core.gateway.routing import Routing
from llmgw_core.model.route import Lingering, ModelRoute, RouteTable, Target
from llmgw_core.testing.scripted_engine import DEADLINE_S


def a_table(version: int, *generations: int) -> RouteTable:
    targets = tuple(Target("m/1", each, "192.0.2.1", 18000) for each in generations)
    return RouteTable(version, (ModelRoute("m", targets=targets),))


class Gateway:
    """One worker, which takes a table when it is told to."""

    def __init__(self, state: Path) -> None:
        self.board = Board()
        self.published: list[Routed] = []
        self.routing = Routing(self.board, self.published.append, state)

    def work_by(self, version: int) -> None:
        self.board.rows[0][0] = version

    def begin(self, generation: int) -> None:
        """A request at an attempt, as a worker counts it by the first table."""
        self.board.rows[0][attempt_cell(self.published[0].places.attempts[f"m/1@{generation}"])] += 1


@pytest.fixture(name="gateway")
async def _gateway(tmp_path: Path) -> Gateway:
    gateway = Gateway(tmp_path)
    await gateway.routing.take(a_table(1, 1, 2))
    gateway.work_by(1)
    return gateway


async def test_what_a_worker_begins_by_an_older_table_lingers(gateway: Gateway) -> None:
    await gateway.routing.take(a_table(2, 2))
    gateway.begin(1)  # it has not looked yet
    gateway.work_by(2)
    assert gateway.routing.lingering() == (Lingering("m/1", 1, 1),)


async def test_so_does_what_is_begun_by_a_table_long_before(gateway: Gateway) -> None:
    for version in (2, 3, 4):
        await gateway.routing.take(a_table(version, version))
    gateway.begin(1)
    assert gateway.routing.lingering() == (Lingering("m/1", 1, 1),)


async def test_an_attempts_place_is_free_once_no_worker_can_lead_there(gateway: Gateway) -> None:
    for version in (2, 3):
        await gateway.routing.take(a_table(version, 2))
        gateway.work_by(version)
    assert set(gateway.published[-1].places.attempts) == {"m/1@2"}


async def test_a_link_that_is_started_again_goes_by_what_its_workers_have(gateway: Gateway, tmp_path: Path) -> None:
    """The disk may have been full for long: what is there is older, and its places are others."""
    old = (tmp_path / ROUTE_FILE).read_bytes()
    await gateway.routing.take(a_table(2, 3, 2))
    gateway.work_by(2)
    (tmp_path / ROUTE_FILE).write_bytes(old)
    again = Routing(gateway.board, gateway.published.append, tmp_path)
    again.load(render_routes(gateway.published[-1]))
    assert gateway.published[-1] == gateway.published[-2]
    gateway.begin(1)
    assert again.lingering() == (Lingering("m/1", 1, 1),)
    with trio.fail_after(DEADLINE_S):
        assert await again.next_taken(None) == (2, (Lingering("m/1", 1, 1),))


GOOD = render_routes(Routed(a_table(1, 1), Places(attempts={"m/1@1": 1})))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"m/1@1": 1}', b'"m/1@1": %d}' % ATTEMPTS),
        (b'"m/1@1": 1}', b'"m/1@1": -1}'),
        (b'"m/1@1": 1}', b'"m/1": 1}'),
        (b'"replicas": {}', b'"replicas": {"m/1": 1000000}'),
        (b'"replicas": {}', b'"others": {}'),
        (b'"replicas": {}', b'"replicas": ' + b"[" * 100_000),
        (b":18000", b":99999999"),
        (b"\n", b""),
    ],
)
def test_what_no_gateway_wrote_is_damaged(good: bytes, bad: bytes) -> None:
    assert parse_routes(GOOD).table.version == 1
    assert good in GOOD
    with pytest.raises(BadRouteFile, match="damaged"):
        parse_routes(GOOD.replace(good, bad))

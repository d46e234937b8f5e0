"""What of a machine concerns other nodes: addresses, ports, strangers; and questions to engines."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
from attrs import define

from llmgw_core.agent.asking import ask, takes_connection
from llmgw_core.agent.facts import Picture
from llmgw_core.agent.ports import judge_listener, port_trouble
from llmgw_core.agent.processes import read_processes
from llmgw_core.agent.settings import AgentFile, parse_address, understand
from llmgw_core.agent.shards import Shards
from llmgw_core.agent.surroundings import (
    busy_ports,
    describe_stray,
    find_strays,
    interface_of,
    own_address,
    watch_surroundings,
)
from llmgw_core.engine import Endpoint, Reply, ReplyKind, Secret
from llmgw_core.errors import LlmgwError
from llmgw_core.model.node import PortRange
from llmgw_core.net.call import Server
from llmgw_core.plan.shard_tree import Process
from llmgw_core.testing.running_node import DEADLINE_S


async def test_the_own_address_is_that_from_which_the_control_plane_is_called() -> None:
    with trio.fail_after(DEADLINE_S):
        assert await own_address(Server("127.0.0.1")) == "127.0.0.1"
        assert await own_address(Server("no-such-host.invalid")) == ""
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") is None


@pytest.mark.parametrize("text", ["gpu1", "0.0.0.0", "::", "10.0.0.1:80", "10.0.0.0/8"])
def test_an_address_is_one_that_others_can_use(text: str) -> None:
    with pytest.raises(LlmgwError, match="address"):
        parse_address(text)


def test_addresses_as_they_are_usually_written() -> None:
    assert (parse_address(""), parse_address("10.0.0.11"), parse_address("FD00::0:1")) == ("", "10.0.0.11", "fd00::1")


def test_a_port_is_busy_for_strangers_only() -> None:
    table = read_processes("nobody")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        around = (PortRange(port, port),)
        assert busy_ports(around, {}) == (port,)
        assert busy_ports((PortRange(port + 1, port + 1),), {}) in ((), (port + 1,))
        assert port_trouble(port) == f"port {port} is in use"
        assert judge_listener(port, table, ())[0].startswith(f"port {port}: something else listens (")
    assert judge_listener(port, table, ())[0] == f"port {port}: nothing listens"
    assert port_trouble(port) == ""


def test_strays_are_a_line_each() -> None:
    def process(pid: int, marker: str) -> Process:
        return Process(pid, 1, 1, pid, "S", "VLLM::EngineCor", marker)

    marks = {
        10: "a/1#0@1",
        11: "a/1#0@1",
        12: "b/1#0@1",
        13: "c/1#0@1",
        14: "",
        **dict.fromkeys(range(20, 26), "d/1#0@1"),
    }
    table = {pid: process(pid, marker) for pid, marker in marks.items()}
    strays = find_strays(table, {13: table[13]}, {"b/1#0@1"})
    lines = [describe_stray(marker, who) for marker, who in strays.items()]
    assert lines[0] == "a/1#0@1: pid 10 (VLLM::EngineCor), pid 11 (VLLM::EngineCor)"
    assert len(lines) == 2
    assert lines[1].endswith("and 2 more")


@asynccontextmanager
async def answering(answer: Callable[[trio.SocketStream], object]) -> AsyncIterator[Endpoint]:
    async def serve(stream: trio.SocketStream) -> None:
        await answer(stream)  # type: ignore[misc]

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield Endpoint("127.0.0.1", listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore", Reply(ReplyKind.ANSWERED, 200, "ok")),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Reply(ReplyKind.ANSWERED, 503, "")),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1000, Reply(ReplyKind.ANSWERED, 200, "x" * 100)),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Reply(ReplyKind.ANSWERED, 200)),
        (b"SSH-2.0-OpenSSH\r\n", Reply(ReplyKind.BROKEN)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Reply(ReplyKind.BROKEN)),
        (b"", Reply(ReplyKind.BROKEN)),
    ],
)
async def test_replies(said: bytes, reply: Reply) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(said)

    with trio.fail_after(DEADLINE_S):
        async with answering(answer) as endpoint:
            assert await ask(endpoint, "/health", DEADLINE_S, most=100) == reply


async def test_a_probe_takes_its_time_and_no_more() -> None:
    """E09: one that accepts and says nothing wedges nobody."""
    asked: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        asked.append(bytes(await stream.receive_some()))
        await trio.sleep_forever()

    with trio.fail_after(DEADLINE_S):
        async with answering(answer) as endpoint:
            for within_s in (0.1, 1.0, 4.0, 16.0):  # until it gets so far as to ask
                assert await ask(endpoint, "/health", within_s, api_key=Secret("k")) == Reply(ReplyKind.TIMED_OUT)
                if asked:
                    break
            assert b"GET /health HTTP/1.1\r\n" in asked[0]
            assert b"authorization: bearer k\r\n" in asked[0].lower()
            assert await takes_connection(endpoint, DEADLINE_S)
        assert await ask(endpoint, "/health", DEADLINE_S) == Reply(ReplyKind.REFUSED)
        assert not await takes_connection(endpoint, 1)


@define(eq=False)
class EndingShards:
    """In place of a node's shards: the only one ends while the machine's processes are read."""

    left: frozenset[str] = frozenset({"m/1#0@1"})
    lent_ports: frozenset[int] = frozenset()

    @property
    def node(self) -> EndingShards:
        return self

    async def processes(self) -> dict[int, Process]:
        (marker,), self.left = self.left, frozenset()
        return {10: Process(10, 1, 1, 10, "S", "python", marker), 11: Process(11, 1, 1, 11, "S", "python", "m/2#0@1")}

    def own_processes(self, table: dict[int, Process]) -> dict[int, Process]:
        return {}

    def markers(self) -> frozenset[str]:
        return self.left


async def test_a_shard_that_ends_while_it_is_looked_is_no_stray(tmp_path: Path) -> None:
    server = "https://127.0.0.1:1"
    file = AgentFile(
        node="n0", server=server, certificate="x", key="x", authority="x", state=str(tmp_path), address="127.0.0.1"
    )
    picture = Picture(understand(file))
    with trio.move_on_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_surroundings, picture, understand(file), cast(Shards, EndingShards()))
            while not picture.facts.strays:
                await picture.wait_other_than(picture.facts)
            nursery.cancel_scope.cancel()
    assert picture.facts.strays == ("m/2#0@1: pid 11 (python)",)

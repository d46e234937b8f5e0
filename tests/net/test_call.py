"""How the control plane is reached, and the one line when it is not."""

import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import trio

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Role
from llmgw_core.net.call import NotReached, Server, call, parse_server
from llmgw_core.net.link import LinkClosed, accept_link
from llmgw_core.net.tls import CredentialFiles, server_context
from llmgw_core.testing.made_fleet import DEADLINE_S, MadeAuthority, right_now
from llmgw_core.wire.message import Heartbeat

Handler = Callable[[trio.SSLStream[trio.SocketStream]], Awaitable[None]]


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("https://control", Server("control", 7443)),
        ("https://control:8443", Server("control", 8443)),
        ("https://10.0.0.1:7443/", Server("10.0.0.1", 7443)),
        ("https://node_1.example.org.", Server("node_1.example.org.", 7443)),
        ("https://[fe80::1]:7443", Server("fe80::1", 7443)),
        ("HTTPS://Control.Example.org", Server("control.example.org", 7443)),
    ],
)
def test_an_address(text: str, server: Server) -> None:
    assert parse_server(text) == server
    assert parse_server(str(server)) == server


async def test_a_name_that_dns_cannot_know_is_not_reached(node: CredentialFiles) -> None:
    with pytest.raises(NotReached, match="no name that DNS could know"):
        async with call(Server("a..b"), node, right_now()):
            pass


@pytest.mark.parametrize(
    "text",
    [
        "",
        "control",
        "control:7443",
        "http://control:7443",
        "https://",
        "https://control:port",
        "https://control:99999",
        "https://control:0",
        'https://a"b',
        "https://a..b",
        "https://.foo",
        "https://" + "a" * 64,
        "https://" + ".".join(["a" * 60] * 5),
        "https://a b",
        "https://kö\u0308",
        "https://control/path",
        "https://control?x=1",
        "https://control#x",
        "https://alice@control",
        "https://[::1",
        "wss://control",
    ],
)
def test_what_is_no_address_is_told_with_the_way_out(text: str) -> None:
    with pytest.raises(LlmgwError, match=rf"^server {re.escape(repr(text))}.*; write https://HOST:7443$"):
        parse_server(text)


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> MadeAuthority:
    return MadeAuthority.create(tmp_path)


@pytest.fixture(name="node")
def _node(authority: MadeAuthority) -> CredentialFiles:
    return authority.issue(Role.NODE, "gpu1")


@asynccontextmanager
async def serving(files: CredentialFiles, handle: Handler) -> AsyncIterator[Server]:
    context = server_context(files)

    async def encrypt(caller: trio.SocketStream) -> None:
        stream = trio.SSLStream(caller, context, server_side=True, https_compatible=True)
        try:
            await stream.do_handshake()
            await handle(stream)
        except trio.BrokenResourceError:
            pass  # the caller refused us
        finally:
            await trio.aclose_forcefully(stream)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, encrypt, [listener])
        yield Server("127.0.0.1", listener.socket.getsockname()[1])
        nursery.cancel_scope.cancel()


async def echo(stream: trio.SSLStream[trio.SocketStream]) -> None:
    try:
        async with accept_link(stream) as link:
            while True:
                await link.say(await link.hear())  # type: ignore[arg-type]
    except LinkClosed:
        pass


async def why_not(server: Server, files: CredentialFiles) -> str:
    with trio.fail_after(DEADLINE_S), pytest.raises(NotReached) as caught:
        async with call(server, files, right_now()):
            pass
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    return said


async def test_a_link(authority: MadeAuthority, node: CredentialFiles) -> None:
    async with serving(authority.issue(Role.SERVER, "control"), echo) as server:
        with trio.fail_after(DEADLINE_S):
            async with call(server, node, right_now()) as link:
                for number in range(3):
                    await link.say(Heartbeat(number))
                    assert await link.hear() == Heartbeat(number)


async def test_an_error_of_the_block_is_the_blocks_own(authority: MadeAuthority, node: CredentialFiles) -> None:
    async with serving(authority.issue(Role.SERVER, "control"), echo) as server:
        with trio.fail_after(DEADLINE_S), pytest.raises(ZeroDivisionError):
            async with call(server, node, right_now()):
                raise ZeroDivisionError


async def test_nobody_listens(node: CredentialFiles) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        server = Server("127.0.0.1", reserved.getsockname()[1])
        assert await why_not(server, node) == f"cannot connect to {server}: Connection refused"


async def test_no_such_host(node: CredentialFiles) -> None:
    said = await why_not(Server("no-such-host.invalid"), node)
    assert said.startswith("cannot connect to https://no-such-host.invalid:7443: ")


async def test_f15_a_server_with_another_name_lists_the_names_that_it_has(
    authority: MadeAuthority, node: CredentialFiles
) -> None:
    async with serving(authority.issue(Role.SERVER, "control"), echo) as server:
        said = await why_not(Server("localhost", server.port), node)
    assert "the server's certificate is for other names: " in said
    assert said.endswith("it is valid for IP:127.0.0.1")


async def test_a_server_of_another_authority(tmp_path: Path, node: CredentialFiles) -> None:
    (tmp_path / "other").mkdir()
    other = MadeAuthority.create(tmp_path / "other")
    async with serving(other.issue(Role.SERVER, "control"), echo) as server:
        assert "issued by another authority than ours" in await why_not(server, node)


@pytest.mark.parametrize(
    ("age", "reason"),
    [(timedelta(days=92), "expired on "), (timedelta(hours=-1), "is not yet valid: it begins on ")],
)
async def test_f13_a_server_out_of_its_time_is_told_with_both_times(
    authority: MadeAuthority, node: CredentialFiles, age: timedelta, reason: str
) -> None:
    async with serving(authority.make(Role.SERVER, "control", age=age), echo) as server:
        said = await why_not(server, node)
    assert f"the peer's certificate {reason}" in said
    assert "this machine's clock says " in said


async def test_a_server_that_refuses_us_says_why(tmp_path: Path, authority: MadeAuthority) -> None:
    (tmp_path / "other").mkdir()
    stranger = MadeAuthority.create(tmp_path / "other").make(Role.NODE, "gpu1", trusts=authority)

    async def never(stream: object) -> None:
        raise AssertionError("it was let in")

    # trio's own server sends no alert: what the agent sees of a server of another make.
    async with serving(authority.issue(Role.SERVER, "control"), never) as server:
        assert (
            await why_not(server, stranger) == f"{server} refused us: no WebSocket came about: the connection is gone"
        )


async def test_a_port_that_speaks_no_tls(node: CredentialFiles) -> None:
    async def greet(caller: trio.SocketStream) -> None:
        await caller.send_all(b"SSH-2.0-OpenSSH_9.2\r\n")
        await caller.receive_some()
        await caller.aclose()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greet, [listener])
        said = await why_not(Server("127.0.0.1", listener.socket.getsockname()[1]), node)
        nursery.cancel_scope.cancel()
    assert "the peer does not speak TLS" in said


async def test_a_server_that_says_nothing(node: CredentialFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw_core.net.call.CONNECT_S", 0.1)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        server = Server("127.0.0.1", listener.socket.getsockname()[1])
        assert await why_not(server, node) == f"{server} did not answer within 0.1 s"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "rejected with HTTP status 404"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "rejected with HTTP status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "rejected with HTTP status 200"),
        (b"garbage\r\n\r\n", "the peer does not speak WebSocket (LocalProtocolError)"),
        (b"", "the connection is gone"),
    ],
    ids=["404", "404 with a body", "200", "garbage", "nothing"],
)
async def test_a_server_that_is_no_control_plane(
    authority: MadeAuthority, node: CredentialFiles, answer: bytes, reason: str
) -> None:
    async def reply(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some()
        if answer:
            await stream.send_all(answer)

    async with serving(authority.issue(Role.SERVER, "control"), reply) as server:
        assert await why_not(server, node) == f"{server} refused us: no WebSocket came about: {reason}"


async def test_a_server_that_never_upgrades(
    authority: MadeAuthority, node: CredentialFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.net.link.UPGRADE_S", 0.1)

    async def wait(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await trio.sleep_forever()

    async with serving(authority.issue(Role.SERVER, "control"), wait) as server:
        assert (await why_not(server, node)).endswith("no WebSocket came about: nothing within 0.1 s")

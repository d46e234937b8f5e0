"""Who does not get in, and why: one line in the control plane's log, and the same reason at the peer."""

import json
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from llmgw_core.control import fleet, renewal, visitor
from llmgw_core.model.identity import Identity, Role
from llmgw_core.model.node import Fabric
from llmgw_core.net import door
from llmgw_core.net.call import NotReached
from llmgw_core.net.link import Link, LinkClosed
from llmgw_core.net.tls import CredentialFiles, client_context
from llmgw_core.pki.certificate import Order, make_key, make_request
from llmgw_core.pki.files import write_key
from llmgw_core.plan.admission import STORES_AT_ONCE, STORES_PER_S
from llmgw_core.store.database import Database, StoreFull
from llmgw_core.testing.made_fleet import (
    DEADLINE_S,
    MadeAuthority,
    MadeControl,
    Peer,
    right_now,
    running_control,
    some_facts,
)
from llmgw_core.wire.message import (
    MESSAGE_LIMIT_BYTES,
    PROTOCOL,
    Acknowledged,
    Ask,
    CertificateRenewed,
    CheckEngine,
    EngineChecked,
    Heartbeat,
    HeartbeatSeen,
    Hello,
    Refused,
    RenewCertificate,
    Report,
)


@pytest.fixture(name="plane")
async def _plane(tmp_path: Path) -> AsyncIterator[MadeControl]:
    async with running_control(tmp_path) as plane:
        yield plane


async def said_to(plane: MadeControl, files: CredentialFiles, hello: Any) -> str:
    """What the peer is told when it begins with `hello`, a message or a raw text."""
    try:
        async with plane.connect(files) as link:
            if isinstance(hello, str | bytes):
                await link._socket.send_message(hello)
            else:
                await link.say(hello)
            with trio.fail_after(DEADLINE_S):
                message = await link.hear()
            assert isinstance(message, Refused), message
            return message.reason
    except (NotReached, LinkClosed) as error:
        return str(error)


async def both(plane: MadeControl, files: CredentialFiles, hello: Any, reason: str) -> str:
    """The log's line, once both it and the peer have the reason."""
    said = await said_to(plane, files, hello)
    assert reason in said
    line = await plane.log.wait_for(r"WARNING refused .*")
    assert reason in line.replace('\\"', '"')
    assert names_address(line)
    return line


def names_address(line: str) -> bool:
    return "address=127.0.0.1:" in line


def hello(name: str = "gpu1", protocol: int = PROTOCOL, instance: str = "i1") -> Hello:
    return Hello(protocol, name, "9.9", instance)


async def test_a_node_that_claims_anothers_id(plane: MadeControl) -> None:
    reason = "node gpu2 refused: its certificate's common name is gpu1"
    line = await both(plane, plane.node("gpu1"), hello("gpu2"), reason)
    assert "node=gpu2" in line


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (timedelta(days=92), "node gpu1 refused: its certificate expired on "),
        (timedelta(hours=-1), "node gpu1 refused: its certificate is not yet valid: it begins on "),
    ],
    ids=["expired", "not yet valid"],
)
async def test_a_certificate_out_of_its_time_says_whose_clock(plane: MadeControl, age: timedelta, reason: str) -> None:
    line = await both(plane, plane.authority.make(Role.NODE, "gpu1", age=age), hello(), reason)
    assert "the control plane's clock says" in line
    assert "node=gpu1" in line


async def test_a_node_of_another_authority(plane: MadeControl, tmp_path: Path) -> None:
    other = MadeAuthority.create(tmp_path / "other")
    said = await said_to(plane, other.make(Role.NODE, "gpu1", trusts=plane.authority), hello())
    assert "it does not trust the authority that issued our certificate" in said
    line = await plane.log.wait_for("WARNING refused")
    assert "issued by another authority than ours" in line
    assert names_address(line)


async def test_a_certificate_for_another_use(plane: MadeControl) -> None:
    server_only = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    said = await said_to(plane, plane.authority.make(Role.NODE, "gpu1", usage=server_only), hello())
    assert "our certificate is of the wrong kind for this side of a connection" in said
    line = await plane.log.wait_for("WARNING refused")
    assert "of the wrong kind" in line
    assert names_address(line)


async def test_a_certificate_for_no_use_in_particular(plane: MadeControl) -> None:
    reason = "node gpu1 refused: its certificate is not for clientAuth, which a node needs"
    line = await both(plane, plane.authority.make(Role.NODE, "gpu1", no_usage=True), hello(), reason)
    assert "node=gpu1" in line


async def test_a_server_in_an_agents_place(plane: MadeControl) -> None:
    reason = "server gpu1 refused: its certificate's role is server, and this needs gateway or node or operator"
    line = await both(plane, plane.authority.make(Role.SERVER, "gpu1", no_usage=True), hello(), reason)
    assert "node=gpu1" in line


async def test_an_agent_with_a_gateways_certificate(plane: MadeControl) -> None:
    async with plane.joined(plane.authority.issue(Role.GATEWAY, "gpu1"), "gpu1") as peer:
        await peer.link.say(Report(1, some_facts()))
        assert await peer.refusal() == "Report from a gateway"


async def test_no_certificate(plane: MadeControl) -> None:
    bare = ssl.create_default_context(cafile=str(plane.operator.authority))
    said = await refused_stream(plane, bare)
    assert "it asks for a certificate, and we gave none" in said
    line = await plane.log.wait_for("WARNING refused")
    assert "the peer gave no certificate" in line
    assert names_address(line)


async def refused_stream(plane: MadeControl, context: ssl.SSLContext) -> str:
    from llmgw_core.net.tls import explain_tls_error

    with trio.fail_after(DEADLINE_S):
        stream = await trio.open_tcp_stream(plane.server.host, plane.server.port)
        encrypted = trio.SSLStream(stream, context, server_hostname=plane.server.host, https_compatible=True)
        with pytest.raises(trio.BrokenResourceError) as caught:
            await encrypted.receive_some()  # in TLS 1.3 a client hears of its refusal after its handshake
        await trio.aclose_forcefully(encrypted)
    return explain_tls_error(caught.value)


async def test_tls_1_2(plane: MadeControl) -> None:
    context = client_context(plane.node("gpu1"))
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    assert "does not speak TLS 1.3" in await refused_stream(plane, context)
    assert "does not speak TLS 1.3" in await plane.log.wait_for("WARNING refused")


@pytest.mark.parametrize(("protocol", "age"), [(0, "older"), (2, "newer")])
async def test_a_protocol_that_is_not_spoken(plane: MadeControl, protocol: int, age: str) -> None:
    reason = f"gpu1 refused: it speaks protocol {protocol} (release 9.9), {age} than this control plane, which speaks 1"
    line = await both(plane, plane.node("gpu1"), hello(protocol=protocol), reason)
    assert "node=gpu1" in line


async def test_an_operators_command_that_is_too_new(plane: MadeControl) -> None:
    reason = "alice refused: it speaks protocol 2 (release 9.9), newer than this control plane, which speaks 1"
    line = await both(plane, plane.operator, hello("alice", 2), reason)
    assert "node=alice" in line


FIRST_MESSAGES = {
    "text": ("GET / HTTP/1.1", "not JSON: 'GET / HTTP/1.1'"),
    "deep": ("[" * 100_000, "not JSON: '[[["),
    "no kind": ("{}", "no message, for it has no kind: '{}'"),
    "no name": ('{"kind":"Hello"}', "not a Hello: "),
    "wrong type": ('{"kind":"Hello","protocol":1,"name":["gpu1"]}', "not a Hello: "),
    "half a character": ('{"kind":"Hello","protocol":1,"name":"gpu1","instance":"\\ud800"}', "not JSON"),
    "infinite": ('{"kind":"Hello","protocol":1e999,"name":"gpu1"}', "not JSON"),
    "huge": ('{"kind":"Hello","protocol":99999999999999999999,"name":"gpu1"}', "not JSON"),
    "binary": (b"\x00\x01", "2 bytes that are no text message"),
    "out of turn": ('{"kind":"Heartbeat","number":1}', "Heartbeat in place of a Hello"),
    "unknown": ('{"kind":"Sing","song":1}', "Unknown in place of a Hello"),
}


@pytest.mark.parametrize(("raw", "reason"), FIRST_MESSAGES.values(), ids=FIRST_MESSAGES.keys())
async def test_a_first_message_that_is_none(plane: MadeControl, raw: str | bytes, reason: str) -> None:
    line = await both(plane, plane.node("gpu1"), raw, reason)
    assert "node=gpu1" in line


async def test_garbage_on_a_live_link(plane: MadeControl) -> None:
    async with live_node(plane, plane.node("gpu1")) as peer:
        await peer.link._socket.send_message("garbage")
        assert await peer.refusal() == "not JSON: 'garbage'"
    line = await plane.log.wait_for("WARNING refused")
    assert "node=gpu1" in line
    assert "not JSON: 'garbage'" in line
    assert names_address(line)


async def test_a_message_before_the_snapshot(plane: MadeControl) -> None:
    async with plane.joined(plane.node("gpu1"), "gpu1") as peer:
        await peer.link.say(Heartbeat(1))
        assert await peer.refusal() == "Heartbeat before the snapshot"
    assert "node=gpu1" in await plane.log.wait_for("WARNING refused .*Heartbeat before the snapshot")


async def test_a_kind_that_is_not_known_is_passed_over(plane: MadeControl) -> None:
    async with live_node(plane, plane.node("gpu1")) as peer:
        await peer.link._socket.send_message('{"kind":"Sing","song":1}')
        await peer.link.say(Heartbeat(1))
        assert await peer.expect(HeartbeatSeen) == HeartbeatSeen(1)


@pytest.mark.parametrize("times", [1, 4], ids=["a little", "far"])
async def test_a_first_message_over_the_limit(plane: MadeControl, times: int) -> None:
    raw = '{"kind":"Hello"' + " " * (times * MESSAGE_LIMIT_BYTES) + "}"
    line = await both(plane, plane.node("gpu1"), raw, f"message too large: more than {MESSAGE_LIMIT_BYTES} bytes")
    assert "node=gpu1" in line


async def test_a_message_over_the_limit_on_a_live_link(plane: MadeControl) -> None:
    reason = f"message too large: more than {MESSAGE_LIMIT_BYTES} bytes"
    async with live_node(plane, plane.node("gpu1")) as peer:
        await peer.link._socket.send_message(" " * (2 * MESSAGE_LIMIT_BYTES))
        with pytest.raises(LinkClosed, match=reason):
            await peer.hear()
    line = await plane.log.wait_for("WARNING refused")
    assert reason in line
    assert "node=gpu1" in line
    assert names_address(line)


async def test_what_nodes_say_too_much_of_blinds_no_operator(plane: MadeControl) -> None:
    fabrics = tuple(Fabric(f"f{number}", (), trouble="x" * 50) for number in range(3000))
    large = some_facts(refused_plugins=("\0" * (MESSAGE_LIMIT_BYTES // 10),), fabrics=fabrics)
    for name in ("gpu1", "gpu2", "gpu3"):
        async with live_node(plane, plane.node(name), large):
            pass
    async with plane.joined(plane.operator, "alice") as peer:
        assert [node["name"] for node in await peer.ask("nodes")] == ["gpu1", "gpu2", "gpu3"]
        shown = await peer.ask("node", node="gpu1")
        assert len(json.dumps(shown)) < MESSAGE_LIMIT_BYTES // 4
        assert "too much was reported: 3000 fabrics, of which 64 are kept" in shown["troubles"]
        assert len(await peer.ask("fabrics")) == 64
        assert all(len(event["reason"]) <= 500 for event in await peer.ask("events"))


async def test_plain_http_is_answered_in_http(plane: MadeControl) -> None:
    with trio.fail_after(DEADLINE_S):
        stream = await trio.open_tcp_stream(plane.server.host, plane.server.port)
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100_000)
        answer = b"".join([bytes(part) async for part in stream])
        await stream.aclose()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"This port speaks TLS with client certificates" in answer
    line = await plane.log.wait_for("WARNING refused")
    assert "plain HTTP on the TLS port" in line
    assert names_address(line)


async def test_bytes_that_are_no_tls(plane: MadeControl) -> None:
    with trio.fail_after(DEADLINE_S):
        stream = await trio.open_tcp_stream(plane.server.host, plane.server.port)
        await stream.send_all(b"\x00\x01\x02")
        assert await received(stream) == b""
    assert "no TLS: it began with byte 0x00" in await plane.log.wait_for("WARNING refused")


async def received(stream: trio.SocketStream) -> bytes:
    found = b""
    try:
        async for part in stream:
            found += part
    except trio.BrokenResourceError:
        pass
    await stream.aclose()
    return found


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"], ids=["silent", "stalled"])
async def test_a_handshake_that_is_too_slow(plane: MadeControl, first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.2)
    with trio.fail_after(DEADLINE_S):
        stream = await trio.open_tcp_stream(plane.server.host, plane.server.port)
        await stream.send_all(first) if first else None
        assert await received(stream) == b""
    line = await plane.log.wait_for("WARNING refused")
    assert "handshake too slow: not finished within 0.2 s" in line
    assert names_address(line)


async def test_a_peer_that_says_no_hello(plane: MadeControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitor, "HELLO_S", 0.2)
    async with plane.connect(plane.node("gpu1")) as link:
        assert await Peer(link).refusal() == "no Hello within 0.2 s"
    line = await plane.log.wait_for("WARNING refused")
    assert "no Hello within 0.2 s" in line
    assert "node=gpu1" in line


async def test_https_that_is_no_websocket(plane: MadeControl) -> None:
    with trio.fail_after(DEADLINE_S):
        stream = await trio.open_tcp_stream(plane.server.host, plane.server.port)
        context = client_context(plane.node("gpu1"))
        encrypted = trio.SSLStream(stream, context, server_hostname=plane.server.host, https_compatible=True)
        await encrypted.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await encrypted.receive_some()
        await trio.aclose_forcefully(encrypted)
    assert b" 400 " in answer.splitlines()[0]
    line = await plane.log.wait_for("WARNING refused")
    assert "no WebSocket came about" in line
    assert "node=gpu1" in line
    assert names_address(line)


# revocation


@asynccontextmanager
async def live_node(
    plane: MadeControl, files: CredentialFiles, facts: Any = None, instance: str = "i1"
) -> AsyncIterator[Peer]:
    """A node whose snapshot is stored."""
    name = files.certificate.stem
    async with plane.joined(files, name, instance) as peer:
        await peer.link.say(Report(1, facts or some_facts()))
        assert await peer.expect(Acknowledged) == Acknowledged(1)
        yield peer


def serial(files: CredentialFiles) -> str:
    return f"{x509.load_pem_x509_certificate(files.certificate.read_bytes()).serial_number:x}"


async def test_revoked_before_it_ever_came(plane: MadeControl) -> None:
    files = plane.node("gpu1")
    await plane.ask("revoke", serial=serial(files))
    line = await both(plane, files, hello(), f"node gpu1 refused: its certificate, serial {serial(files)}, is revoked")
    assert "node=gpu1" in line


async def test_a_live_link_is_closed_at_once_and_the_next_is_refused(plane: MadeControl) -> None:
    files = plane.node("gpu1")
    reason = f"node gpu1 refused: its certificate, serial {serial(files)}, is revoked"
    async with live_node(plane, files) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: plane.ask("revoke", name="gpu1", reason="stolen"))
        assert await peer.refusal() == reason
        with pytest.raises(LinkClosed):
            await peer.hear()
    line = await plane.log.wait_for("WARNING refused .*is revoked")
    assert "node=gpu1" in line
    assert reason in await said_to(plane, files, hello())
    line = await plane.log.wait_for("WARNING refused .*is revoked", 2)
    assert reason in line
    assert names_address(line)
    await plane.ask("unrevoke", name="gpu1")
    async with live_node(plane, files):
        assert await plane.node_state("gpu1") == "online"


def issued_long_ago(plane: MadeControl, name: str) -> CredentialFiles:
    """A node's recorded certificate that is to be renewed."""
    made = right_now() - timedelta(days=70)
    issued = plane.authority.authority.issue(Order(Identity(Role.NODE, name)), made)
    assert issued.key is not None
    return plane.authority._write(name, issued.certificate, issued.key)


async def test_a_renewed_certificate_that_never_came_is_revoked_with_its_name(tmp_path: Path) -> None:
    async with running_control(tmp_path, renews=True) as plane:
        files, key = issued_long_ago(plane, "gpu1"), make_key()
        async with live_node(plane, files) as peer:
            await peer.link.say(RenewCertificate(make_request(key).decode()))
            renewed = await peer.expect(CertificateRenewed)
            assert renewed.reason == ""
        await plane.ask("revoke", name="gpu1")
        files.certificate.write_text(renewed.certificate_pem)
        write_key(files.key, key, force=True)
        reason = f"node gpu1 refused: its certificate, serial {serial(files)}, is revoked"
        await both(plane, files, hello(), reason)


async def test_a_certificate_is_renewed_when_it_is_due_and_not_twice(tmp_path: Path) -> None:
    async with running_control(tmp_path, renews=True) as plane:
        request = RenewCertificate(make_request(make_key()).decode())
        async with live_node(plane, plane.node("gpu1")) as early:
            await early.link.say(request)
            assert "it is not due yet" in (await early.expect(CertificateRenewed)).reason
        async with live_node(plane, issued_long_ago(plane, "gpu2")) as due:
            await due.link.say(request)
            assert (await due.expect(CertificateRenewed)).certificate_pem
            await due.link.say(request)
            assert "another one is not before" in (await due.expect(CertificateRenewed)).reason


async def test_a_renewal_that_a_revocation_meets_is_not_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_end = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        started.set()
        may_end.wait(DEADLINE_S)
        return sign(*arguments)

    sign = renewal._renew
    monkeypatch.setattr(renewal, "_renew", slowly)
    async with running_control(tmp_path, renews=True) as plane, live_node(plane, issued_long_ago(plane, "g1")) as peer:
        await peer.link.say(RenewCertificate(make_request(make_key()).decode()))
        await trio.to_thread.run_sync(started.wait, DEADLINE_S)
        await plane.ask("revoke", name="g1")
        may_end.set()
        assert "is revoked" in await peer.refusal()
        with pytest.raises(LinkClosed):
            await peer.hear()


@pytest.mark.parametrize("role", [Role.NODE, Role.OPERATOR])
async def test_a_link_ends_with_its_certificate(plane: MadeControl, role: Role) -> None:
    came_in = []
    for left_s in (1, 4, 16):  # until it comes in before its certificate ends
        files = plane.authority.make(role, "bob", age=timedelta(days=90) - timedelta(seconds=left_s))
        with suppress(NotReached, LinkClosed, AssertionError):
            async with live_node(plane, files) if role is Role.NODE else plane.joined(files, "bob") as peer:
                came_in.append(await peer.refusal())
        if came_in:
            break
    (reason,) = came_in
    assert f"{role.value} bob refused: its certificate expired on " in reason


async def test_a_serial_is_understood_as_it_is_pasted_and_nonsense_is_refused(plane: MadeControl) -> None:
    files = plane.node("gpu1")
    pasted = "0x00" + serial(files).upper()
    (revoked,) = await plane.ask("revoke", serial=pasted)
    assert revoked == f"{serial(files)}, which was never shown here: compare it with `llmgw ca list`"
    assert await plane.ask("unrevoke", serial=serial(files)) == [serial(files)]
    for nonsense in ("gpu1", "0x", " ", "00:00", "4f;bb", "f" * 41):
        with pytest.raises(AssertionError, match="is no serial"):
            await plane.ask("revoke", serial=nonsense)


async def test_a_name_of_two_roles_needs_the_role(plane: MadeControl) -> None:
    node, operator = plane.node("bob"), plane.authority.issue(Role.OPERATOR, "bob")
    async with live_node(plane, node) as peer, plane.joined(operator, "bob") as other:
        with pytest.raises(AssertionError, match=r"bob is the name of node and operator.*--role"):
            await plane.ask("revoke", name="bob")
        with pytest.raises(AssertionError, match=r"alice is the name of operator, and you are .*--role"):
            await plane.ask("revoke", name="alice")
        assert await plane.ask("revoke", name="bob", role="node") == [serial(node)]
        assert "is revoked" in await peer.refusal()
        assert len(await other.ask("nodes")) == 1
    assert await plane.ask("unrevoke", name="bob", role="node") == [serial(node)]


async def test_a_revocation_acts_even_where_it_cannot_be_stored(
    plane: MadeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = plane.node("gpu1")
    async with live_node(plane, files) as peer, plane.joined(plane.operator, "alice") as alice:

        def full(*_: Any) -> None:
            raise StoreFull("the disk is full")

        monkeypatch.setattr(Database, "commit", full)
        with pytest.raises(AssertionError, match=r"could not be stored: the disk is full"):
            await alice.ask("revoke", name="gpu1")
        assert "is revoked" in await peer.refusal()
        assert "is revoked" in await said_to(plane, files, hello())
        async with plane.joined(plane.authority.issue(Role.OPERATOR, "new"), "new") as new:
            assert len(await new.ask("nodes")) == 1


async def test_reports_that_come_too_fast_are_stored_by_their_last(plane: MadeControl) -> None:
    async with live_node(plane, plane.node("gpu1")) as peer:
        begun = trio.current_time()
        for number in range(2, 200):
            await peer.link.say(Report(number, some_facts(disk_free_mib=number)))
        acknowledged = [1]
        while acknowledged[-1] < 199:
            acknowledged.append((await peer.expect(Acknowledged)).number)
        assert len(acknowledged) <= STORES_AT_ONCE + 5 + STORES_PER_S * (trio.current_time() - begun)
        assert (await plane.ask("node", node="gpu1"))["facts"]["disk_free_mib"] == 199


async def test_a_hello_that_is_too_long_is_refused_without_it(plane: MadeControl) -> None:
    said = await said_to(plane, plane.node("gpu1"), Hello(PROTOCOL, "x" * 1000, "1", "i1"))
    assert said == "a Hello whose name has 1000 characters, over 200"
    assert "x" * 201 not in await plane.log.wait_for("WARNING refused")


async def test_one_check_is_shared_by_all_who_ask_and_none_runs_before_the_snapshot(plane: MadeControl) -> None:
    async with plane.joined(plane.node("gpu1"), "gpu1") as peer:
        with pytest.raises(AssertionError, match="is not connected yet"):
            await plane.ask("engine-check", node="gpu1", engine="vllm")
        await peer.link.say(Report(1, some_facts()))
        await peer.expect(Acknowledged)
        answers: list[Any] = []

        async def ask_one() -> None:
            answers.append(await plane.ask("engine-check", node="gpu1", engine="vllm"))

        async with plane.joined(plane.operator, "alice") as leaving, trio.open_nursery() as nursery:
            await leaving.link.say(Ask(1, "engine-check", {"node": "gpu1", "engine": "vllm"}))
            check = await peer.expect(CheckEngine)
            await leaving.link.close()
            for _ in range(3):
                nursery.start_soon(ask_one)
            await plane.log.wait_for("asked.*engine-check", 5)
            await peer.link.say(EngineChecked(check.id, {"verdict": "fine"}))
        assert answers == [{"verdict": "fine"}] * 3


async def test_an_operator_who_reads_nothing_is_not_waited_for(
    plane: MadeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck(*_: Any) -> None:
        await trio.sleep_forever()

    async with plane.joined(plane.operator, "alice") as peer:
        await peer.ask("nodes")
        with monkeypatch.context() as patch:
            patch.setattr(Link, "say", stuck)
            patch.setattr(fleet, "SAY_S", 0.2)
            await peer.link._socket.send_message('{"kind":"Ask","id":1,"what":"nodes","arguments":{}}')
            await plane.log.wait_for("operator has gone.*takes nothing")


async def test_an_operators_live_link_is_closed_too(plane: MadeControl) -> None:
    bob = plane.authority.issue(Role.OPERATOR, "bob")
    async with plane.joined(bob, "bob") as peer, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: plane.ask("revoke", name="bob"))
        assert await peer.refusal() == f"operator bob refused: its certificate, serial {serial(bob)}, is revoked"


async def test_revoking_oneself_closes_all_of_ones_links(plane: MadeControl) -> None:
    alice = (plane.operator, "alice")
    async with plane.joined(*alice) as first, plane.joined(*alice) as second, plane.joined(*alice) as third:
        with pytest.raises(AssertionError, match="is revoked"):
            await second.ask("revoke", serial=serial(plane.operator))
        assert "is revoked" in await first.refusal()
        assert "is revoked" in await third.refusal()


async def test_a_session_cannot_be_resumed_so_it_cannot_outlive_a_revocation(plane: MadeControl) -> None:
    files = plane.node("gpu1")
    context = client_context(files)
    session: ssl.SSLSession | None = None
    for _ in range(2):
        # A blocking socket in a thread: trio's SSLStream takes no session.
        resumed, session = await trio.to_thread.run_sync(_shake, plane.server.port, context, session)
        assert not resumed
        assert session is None or not session.has_ticket


def _shake(port: int, context: ssl.SSLContext, session: Any) -> tuple[bool | None, Any]:
    plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as encrypted:
        return encrypted.session_reused, encrypted.session


# one name, one machine


async def test_f12_a_second_machine_with_another_key_is_refused_and_both_are_named(plane: MadeControl) -> None:
    async with live_node(plane, plane.node("gpu1")) as peer:
        said = await said_to(plane, plane.node("gpu1"), hello())
        assert "with another key; two machines claim one name" in said
        line = await plane.log.wait_for("WARNING refused")
        assert line.count("127.0.0.1:") == 4
        assert "two machines claim one name" in line
        await peer.link.say(Heartbeat(1))
        assert await peer.expect(HeartbeatSeen) == HeartbeatSeen(1)


async def test_a_second_agent_beside_the_first_takes_nothing_from_it(plane: MadeControl) -> None:
    files = plane.node("gpu1")
    async with live_node(plane, files) as peer:
        said = await said_to(plane, files, hello(instance="beside"))
        assert "by another agent with the same certificate, and is heard" in said
        await peer.link.say(Heartbeat(1))
        assert await peer.expect(HeartbeatSeen) == HeartbeatSeen(1)
        assert await plane.node_state("gpu1") == "online"


async def test_onboarding_again_works_when_the_old_link_is_gone(plane: MadeControl) -> None:
    async with live_node(plane, plane.node("gpu1")):
        pass
    await plane.log.wait_for("node disconnected")
    async with live_node(plane, plane.node("gpu1"), instance="i2"):
        assert await plane.node_state("gpu1") == "online"
    (event,) = await plane.events("node has a new key")
    assert "as after onboarding again" in event["reason"]


async def test_f38_a_newer_connection_replaces_the_older_whose_end_touches_nothing(plane: MadeControl) -> None:
    files = plane.node("gpu1")
    async with live_node(plane, files) as older, plane.joined(files, "gpu1") as newer:
        reason = await older.refusal()
        assert re.fullmatch(
            r"node gpu1: the connection from 127\.0\.0\.1:\d+ is replaced by a newer one from 127\.0\.0\.1:\d+", reason
        )
        await newer.link.say(Report(2, some_facts(agent_version="2")))
        await newer.expect(Acknowledged)
        await trio.aclose_forcefully(older.link._socket._stream)
        await plane.log.wait_for("superseded connection ended")
        assert await plane.node_state("gpu1") == "online"
        await newer.link.say(Heartbeat(1))
        assert await newer.expect(HeartbeatSeen) == HeartbeatSeen(1)
        assert not await plane.events("node disconnected")
        assert (await plane.ask("node", node="gpu1"))["facts"]["agent_version"] == "2"


async def test_a_mistake_of_ours_costs_one_connection(plane: MadeControl, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    async with live_node(plane, plane.node("gpu1")) as peer:
        with monkeypatch.context() as patch:
            patch.setattr(visitor, "serve_agent", fail)
            said = await said_to(plane, plane.node("gpu2"), hello("gpu2"))
        assert said
        assert "ZeroDivisionError" in await plane.log.wait_for("ERROR .*node=gpu2")
        await peer.link.say(Heartbeat(1))
        assert await peer.expect(HeartbeatSeen) == HeartbeatSeen(1)

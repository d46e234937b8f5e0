"""How connections are taken: with TLS, where there is no more room, and what a fault of ours costs."""

import errno
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.books import Books
from llmgw_core.gateway.flow import FULL_BYTES, PIECE_BYTES
from llmgw_core.gateway.listener import Listener, MetricsClient, TlsFiles, open_listeners
from llmgw_core.gateway.worker import Worker
from llmgw_core.model.route import ModelRoute, Target
from llmgw_core.testing.gateway_rig import Rig, a_gateway, user_key
from llmgw_core.testing.http_words import LAST_CHUNK, answer, event, get, post, stream_head, wish
from llmgw_core.testing.ports import free_port
from llmgw_core.testing.raw_client import RawClient
from llmgw_core.testing.scripted_engine import DEADLINE_S, Act

GOOD = answer()


def _write_certificate(directory: Path, name: str = "gateway") -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)  # noqa: TID251
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("gateway")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = directory / "cert.pem", directory / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, private


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return _write_certificate(tmp_path_factory.mktemp("tls"))


async def _encrypted(rig: Rig, *, small: bool = False) -> RawClient:
    plain = await rig.client(small=small)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stream = trio.SSLStream(plain.stream, context, server_hostname="gateway", https_compatible=True)
    with trio.fail_after(DEADLINE_S):
        await stream.do_handshake()
    return RawClient(cast(trio.SocketStream, stream))


@pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
async def test_streams_and_large_bodies_over_tls(files: tuple[Path, Path], portable: bool) -> None:
    body = wish(text="x" * 3_000_000)
    async with a_gateway(portable=portable, new_client=TlsFiles(*files).new_client) as rig:
        engine = await rig.engine([stream_head(), *[event(each, 50_000) for each in range(40)], LAST_CHUNK], [GOOD])
        await rig.route(engine)
        client = await _encrypted(rig)
        assert len((await client.ask(post(body))).chunks) == 41
        assert engine.requests[0].body == body
        assert (await client.ask(post())).status == 200
        await client.send(get() + get("/v1/models", "connection: close"))
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]


async def test_a_slow_reader_over_tls(files: tuple[Path, Path]) -> None:
    async with a_gateway(new_client=TlsFiles(*files).new_client) as rig:
        engine = await rig.engine([stream_head(), *[event(each, 60_000) for each in range(100)], LAST_CHUNK])
        await rig.route(engine)
        client = await _encrypted(rig, small=True)
        await client.send(post())
        await rig.until(lambda: any(each.is_full for each in rig.worker.flows))
        assert sum(each.kept_bytes for each in rig.worker.flows) <= FULL_BYTES + PIECE_BYTES
        assert len((await client.answer()).chunks) == 101


async def test_a_client_that_leaves_over_tls_is_worked_for_no_longer(files: tuple[Path, Path]) -> None:
    async with a_gateway(new_client=TlsFiles(*files).new_client) as rig:
        engine = await rig.engine([stream_head(), event(1), Act.SILENCE])
        await rig.route(engine)
        client = await _encrypted(rig)
        await client.send(post())
        await client.head()
        await client.stream.aclose()
        await engine.until(lambda: engine.left)


async def test_refusals_over_tls_are_heard(files: tuple[Path, Path]) -> None:
    async with a_gateway(new_client=TlsFiles(*files).new_client, body_bytes=100_000) as rig:
        await rig.route()
        client = await _encrypted(rig)
        await client.send(post(wish(text="x" * 2_000_000)))
        assert (await client.answer()).status == 413


async def test_who_speaks_plain_http_to_tls_is_told(files: tuple[Path, Path]) -> None:
    async with a_gateway(new_client=TlsFiles(*files).new_client) as rig:
        await rig.route()
        client = await rig.client()
        told = await client.ask(post(wish(text="x" * 20_000)))
        assert (told.status, told.error["message"]) == (400, "TLS is spoken at this port: use https://")
        await client.rest()


@pytest.mark.parametrize("said", [b"\x16\x03\x01", b"\x16\x03\x01\x00\x05hello", b"\0" * 10_000])
async def test_who_speaks_no_tls_is_closed_and_harms_nobody(files: tuple[Path, Path], said: bytes) -> None:
    async with a_gateway(new_client=TlsFiles(*files).new_client, head_s=30) as rig:
        await rig.route(await rig.engine([GOOD]))
        client = await rig.client()
        await client.send(said)
        if len(said) == 3:
            await rig.until(lambda: len(rig.worker.flows) == 1)
            rig.pass_time(31)
        await client.rest()
        assert client.ended
        assert (await (await _encrypted(rig)).ask(post())).status == 200


async def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pem, private = _write_certificate(tmp_path)
    tls = TlsFiles(pem, private)
    old = tls._current()
    assert tls._current() is old
    pem.write_text("nonsense")
    assert tls._current() is old
    assert "the old certificate is used on" in caplog.text
    _write_certificate(tmp_path, "renewed")
    assert tls._current() is not old
    with pytest.raises(LlmgwError, match="cannot serve TLS"):
        TlsFiles(tmp_path / "none.pem", private)


async def test_the_port_of_the_metrics_has_nothing_else_and_asks_for_no_key() -> None:
    async with a_gateway(authenticates=True, new_client=MetricsClient) as rig:
        await rig.route(await rig.engine([GOOD]), keys=[user_key("secret")])
        assert (await rig.ask(get("/metrics"))).status == 200
        assert (await rig.ask(get("/health"))).status == 200
        for request in (get(), post(), get("/v1/models", "x-api-key: secret"), post(None, "x-api-key: secret")):
            assert (await rig.ask(request)).status == 404
        assert (await rig.ask(post(path="/metrics"))).status == 405


class _Full:
    """A listener that finds no room, as often as it is told."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.times = 1
        self.asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.listener.accept()

    def fileno(self) -> int:
        return self.listener.fileno()

    def close(self) -> None:
        self.listener.close()


async def test_where_there_is_no_room_clients_wait_until_there_is() -> None:
    async with a_gateway() as rig:
        await rig.route(await rig.engine([GOOD]))
        [[accepting]] = open_listeners("127.0.0.1", 0, 1)
        full = _Full(accepting)
        listener = Listener(rig.worker, cast(socket.socket, full))
        logger = logging.getLogger("llmgw.gateway")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        rig.port, port = accepting.getsockname()[1], rig.port
        client = await rig.client()
        await rig.until(lambda: full.asked)
        logger.setLevel(level)
        rig.port = port
        assert (await rig.ask()).status == 200
        assert full.asked == 1
        rig.pass_time(1)
        assert (await client.ask(post())).status == 200
        rig.worker.pause(cast(socket.socket, full))
        listener.close()
        rig.pass_time(1)


async def test_what_the_kernel_has_taken_is_answered_though_the_listener_closes() -> None:
    async with a_gateway() as rig:
        await rig.route(await rig.engine([GOOD]))
        clients = []
        for _ in range(100):  # nothing here lets the gateway look
            each = socket.create_connection(("127.0.0.1", rig.port), timeout=DEADLINE_S)
            each.sendall(post())
            each.setblocking(False)
            clients.append(RawClient(trio.SocketStream(trio.socket.from_stdlib_socket(each))))
        rig.listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", rig.port), timeout=DEADLINE_S)
        for client in clients:
            assert (await client.answer()).status == 200
            await client.stream.aclose()


def test_an_address_in_use_is_said() -> None:
    [[taken]] = open_listeners("127.0.0.1", 0, 1)
    with taken, pytest.raises(LlmgwError, match=r"cannot listen on 127\.0\.0\.1:"):
        open_listeners("127.0.0.1", taken.getsockname()[1], 2)


async def test_a_fault_of_ours_costs_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serve = Worker.serve

    def fail(self: Worker, client: object, request: object) -> None:
        if request.target == b"/v1/fault":  # type: ignore[attr-defined]
            raise RuntimeError("ours")
        serve(self, client, request)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "serve", fail)
    logger = logging.getLogger("llmgw.gateway")
    async with a_gateway() as rig:
        handlers, logger.handlers = logger.handlers, []
        engine = await rig.engine([stream_head(), event(1), Act.SILENCE], [GOOD])
        await rig.route(engine)
        streaming, faulty = await rig.client(), await rig.client()
        await streaming.send(post())
        await streaming.head()
        await faulty.send(post(path="/v1/fault"))
        assert await faulty.rest() == b""
        assert rig.in_flight() == 1
        assert (await rig.ask()).status == 200
        logger.handlers = handlers
    assert "ours" in caplog.text


@pytest.mark.parametrize("where", ["as it connects", "when it is late"])
async def test_so_does_one_where_a_replica_fails_and_its_end_fails_too(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Books, replica: object, cause: str) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(Books, "note_cause", fail)
    logger = logging.getLogger("llmgw.gateway")
    async with a_gateway() as rig:
        handlers, logger.handlers = logger.handlers, []
        gone = Target("m/9", 1, "127.0.0.1", free_port())
        late, good = await rig.engine([Act.SILENCE]), await rig.engine([GOOD])
        target = gone if where == "as it connects" else late.target
        rig.take(ModelRoute("m", targets=(target,)), ModelRoute("good", targets=(good.target,)))
        faulty = await rig.client()
        await faulty.send(post())
        if target is not gone:
            await late.until(lambda: late.requests)
            rig.pass_time(4000.0)
        assert await faulty.rest() == b""
        assert (await rig.ask(post(wish("good")))).status == 200
        logger.handlers = handlers
    assert "ours" in caplog.text

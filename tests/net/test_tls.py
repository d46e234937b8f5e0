"""Real handshakes over memory: who gets in, and what each side says when one does not."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.model.identity import Identity, Role
from llmgw_core.net.tls import (
    CredentialFiles,
    Peek,
    client_context,
    explain_tls_error,
    peer_certificate,
    server_context,
)
from llmgw_core.pki.certificate import Order, Signer, make_authority_certificate, make_key, make_leaf
from llmgw_core.pki.files import BadCredentials, write_certificate, write_key
from llmgw_core.pki.identity import PeerRefused, verify_peer
from llmgw_core.pki.names import AlternativeNames, parse_names

NOW = datetime.now(UTC)  # noqa: TID251 - a client's OpenSSL looks at the real clock
NAMES = parse_names(["llmgw", "control.example.org"], ["10.0.0.140", "::1"])

Make = Callable[..., CredentialFiles]


def make_signer(name: str = "llmgw-authority", now: datetime = NOW) -> Signer:
    key = make_key()
    return Signer(make_authority_certificate(name, key, now), key)


AUTHORITY = make_signer(now=NOW - timedelta(days=400))
OTHER_AUTHORITY = make_signer("other")
NAMESAKE = make_signer()


class Side:
    """One end of a connection over memory."""

    def __init__(self, context: ssl.SSLContext, *, name: str | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=name is None, server_hostname=name)
        self.done = False
        self.error: ssl.SSLError | None = None

    def advance(self) -> None:
        """Shake hands as far as it goes, then read: in TLS 1.3 a client hears of its refusal only then."""
        if self.error is not None:
            return
        try:
            if not self.done:
                self.tls.do_handshake()
                self.done = True
            self.tls.read(1)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error

    def said(self) -> str:
        assert self.error is not None
        return explain_tls_error(self.error)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "llmgw") -> tuple[Side, Side]:
    ends = Side(server), Side(client, name=name)
    for _ in range(4):
        for end, other in (ends, ends[::-1]):
            end.advance()
            other.incoming.write(end.outgoing.read())
    return ends


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Files of a new certificate; `trusts` is whose root stands beside it."""

    def make_files(
        role: Role = Role.NODE,
        *,
        by: Signer = AUTHORITY,
        trusts: Signer = AUTHORITY,
        now: datetime = NOW,
        names: AlternativeNames | None = None,
    ) -> CredentialFiles:
        directory = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        directory.mkdir()
        files = CredentialFiles(directory / "x.crt", directory / "x.key", directory / "ca.crt")
        key = make_key()
        given_names = names or (NAMES if role is Role.SERVER else AlternativeNames())
        order = Order(Identity(role, "control" if role is Role.SERVER else "llmgw-node03"), given_names)
        write_certificate(files.certificate, make_leaf(order, key.public_key(), by, now))
        write_key(files.key, key)
        write_certificate(files.authority, trusts.certificate)
        return files

    return make_files


@pytest.mark.parametrize("name", ["llmgw", "control.example.org", "10.0.0.140", "::1"])
def test_both_sides_know_each_other(make: Make, name: str) -> None:
    server, client = shake(server_context(make(Role.SERVER)), client_context(make()), name)
    assert server.done
    assert client.done
    assert server.error is None
    assert client.error is None
    assert server.tls.version() == "TLSv1.3"
    seen = verify_peer(peer_certificate(server.tls), NOW, roles={Role.NODE}, claimed="llmgw-node03")
    assert seen == Identity(Role.NODE, "llmgw-node03")
    assert verify_peer(peer_certificate(client.tls), NOW, roles={Role.SERVER}) == Identity(Role.SERVER, "control")


@pytest.mark.parametrize(
    ("days", "reason"), [(-100, "expired on"), (2, "is not yet valid: it begins on")], ids=["expired", "not yet valid"]
)
def test_a_server_lets_dates_pass_so_that_our_own_check_can_name_node_and_date(
    make: Make, days: int, reason: str
) -> None:
    server, _ = shake(server_context(make(Role.SERVER)), client_context(make(now=NOW + timedelta(days=days))))
    assert server.error is None
    with pytest.raises(PeerRefused, match=rf"^node llmgw-node03 refused: its certificate {reason}"):
        verify_peer(peer_certificate(server.tls), NOW, roles={Role.NODE})


def test_no_session_can_be_resumed(make: Make) -> None:
    client_side = client_context(make())
    server, client = shake(server_context(make(Role.SERVER)), client_side)
    assert server.done
    assert client.tls.session is not None
    assert not client.tls.session.has_ticket


def test_a_client_of_another_authority_is_refused_and_both_say_so(make: Make) -> None:
    server, client = shake(server_context(make(Role.SERVER)), client_context(make(by=OTHER_AUTHORITY)))
    assert server.said() == (
        "the peer's certificate was issued by another authority than ours: compare both sides' ca.crt"
    )
    assert client.said() == ("the peer refused us: it does not trust the authority that issued our certificate")


def test_a_server_of_another_authority_is_refused_and_both_say_so(make: Make) -> None:
    server, client = shake(server_context(make(Role.SERVER, by=OTHER_AUTHORITY)), client_context(make()))
    assert "another authority than ours" in client.said()
    assert "does not trust the authority that issued our certificate" in server.said()


def test_an_authority_that_was_made_anew_under_the_same_name_is_another(make: Make) -> None:
    server, client = shake(server_context(make(Role.SERVER)), client_context(make(by=NAMESAKE)))
    assert "another authority than ours" in server.said()
    assert client.said().startswith("the peer refused us: ")


@pytest.mark.parametrize("role", [Role.NODE, Role.OPERATOR, Role.GATEWAY])
def test_no_client_certificate_can_serve(make: Make, role: Role) -> None:
    server, client = shake(server_context(make(role)), client_context(make()))
    assert "wrong kind" in client.said()
    assert "wrong kind" in server.said()


def test_a_server_certificate_cannot_be_a_client(make: Make) -> None:
    server, client = shake(server_context(make(Role.SERVER)), client_context(make(Role.SERVER)))
    assert "wrong kind" in server.said()
    assert client.said() == "the peer refused us: our certificate is of the wrong kind for this side of a connection"


def test_a_client_without_certificate_is_told_that_one_is_needed(make: Make) -> None:
    bare = ssl.create_default_context(cafile=str(make().authority))
    server, client = shake(server_context(make(Role.SERVER)), bare)
    assert server.said() == "the peer gave no certificate"
    assert client.said() == "the peer refused us: it asks for a certificate, and we gave none"


def test_f15_connecting_by_an_address_that_the_certificate_has_not_lists_what_it_has(make: Make) -> None:
    serving = server_context(make(Role.SERVER, names=parse_names(["llmgw"], [])))
    server, client = shake(serving, client_context(make()), "10.0.0.140")
    assert client.error is not None
    assert explain_tls_error(client.error, peek(serving)) == (
        "the server's certificate is for other names: IP address mismatch, certificate is not valid for '10.0.0.140';"
        " it is valid for DNS:llmgw"
    )
    assert server.said().startswith("the peer refused us: ")


def test_f16_a_common_name_never_stands_in_for_a_name(make: Make) -> None:
    _, client = shake(server_context(make(Role.SERVER)), client_context(make()), "control")
    assert client.said().startswith("the server's certificate is for other names: Hostname mismatch")


def test_f13_a_server_that_is_not_yet_valid_is_told_with_both_times(make: Make) -> None:
    serving = server_context(make(Role.SERVER, now=NOW + timedelta(minutes=22)))
    server, client = shake(serving, client_context(make()))
    assert client.error is not None
    said = explain_tls_error(client.error, peek(serving), NOW)
    assert said.startswith("the peer's certificate is not yet valid: it begins on ")
    assert f"this machine's clock says {NOW:%Y-%m-%dT%H:%M:%SZ}, " in said
    assert said.endswith("that clock is wrong, or the authority's was when it issued the certificate")
    assert client.said().endswith("not yet valid: this machine's clock is wrong, or the authority's was")
    assert server.said().startswith("the peer refused us: ")


def test_a_server_that_expired_is_told_with_the_date(make: Make) -> None:
    serving = server_context(make(Role.SERVER, now=NOW - timedelta(days=92)))
    server, client = shake(serving, client_context(make()))
    assert client.error is not None
    assert "certificate expired on " in explain_tls_error(client.error, peek(serving), NOW)
    assert server.said() == "the peer refused us: our certificate is not valid at the time that its clock shows"


def peek(server: ssl.SSLContext) -> x509.Certificate:
    serving, peeking = Side(server), Peek()
    serving.incoming.write(peeking.hello)
    serving.advance()
    reply = serving.outgoing.read()
    assert peeking.feed(reply[:100]) is None
    certificate = peeking.feed(reply[100:])
    assert certificate is not None
    assert not serving.done
    return certificate


def test_peeking_at_what_speaks_no_tls_is_a_tls_error() -> None:
    with pytest.raises(ssl.SSLError) as caught:
        Peek().feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "does not speak TLS" in explain_tls_error(caught.value)


def test_a_client_that_speaks_tls_1_2_only_is_refused_and_told(make: Make) -> None:
    old = client_context(make())
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    server, client = shake(server_context(make(Role.SERVER)), old)
    assert "TLS 1.3" in server.said()
    assert client.said() == "the peer refused us: it does not speak TLS 1.3, the only version that llmgw speaks"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "plain HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak TLS"),
        (b"\x00" * 64, "TLS"),
    ],
)
def test_what_is_no_tls_gets_a_reason(make: Make, sent: bytes, said: str) -> None:
    serving = Side(server_context(make(Role.SERVER)))
    serving.incoming.write(sent)
    serving.advance()
    assert said in serving.said()


def test_a_peer_that_goes_away_in_the_handshake_gets_a_reason(make: Make) -> None:
    serving = Side(server_context(make(Role.SERVER)))
    serving.incoming.write_eof()
    serving.advance()
    assert serving.said() == "the peer closed the connection without a word"


def test_a_certificate_signed_by_a_leaf_is_refused(make: Make) -> None:
    key = make_key()
    leaf = make_leaf(Order(Identity(Role.NODE, "llmgw-node03")), key.public_key(), AUTHORITY, NOW)
    forged = make(by=Signer(leaf, key))
    with forged.certificate.open("ab") as file:
        file.write(leaf.public_bytes(Encoding.PEM))
    server, client = shake(server_context(make(Role.SERVER)), client_context(forged))
    assert server.error is not None
    assert client.error is not None


def test_context_errors_name_the_file(make: Make) -> None:
    node, other = make(), make()
    with pytest.raises(BadCredentials, match=r"does not belong to the certificate"):
        client_context(CredentialFiles(node.certificate, other.key, node.authority))
    with pytest.raises(BadCredentials, match=r"it holds a private key"):
        client_context(CredentialFiles(node.certificate, node.key, node.key))
    node.key.unlink()
    with pytest.raises(BadCredentials, match=r"cannot read the key .*: No such file"):
        server_context(node)


def test_an_error_that_another_one_wraps_is_found() -> None:
    inner = ssl.SSLError(1, "[SSL: HTTP_REQUEST] http request (_ssl.c:1006)")
    inner.reason = "HTTP_REQUEST"
    outer = RuntimeError("stream broken")
    outer.__cause__ = inner
    assert explain_tls_error(outer) == "the peer speaks plain HTTP on a TLS port: it should use https"
    reset = RuntimeError()
    reset.__context__ = ConnectionResetError(104, "Connection reset by peer")
    assert explain_tls_error(reset) == "the peer closed the connection without a word"


@given(
    st.text(), st.one_of(st.none(), st.text()), st.sampled_from([ssl.SSLError, OSError, ValueError, ssl.SSLEOFError])
)
def test_any_error_gets_one_line(text: str, reason: str | None, kind: type[Exception]) -> None:
    error = kind(text)
    if isinstance(error, ssl.SSLError):
        error.reason = reason  # type: ignore[assignment]
    said = explain_tls_error(error)
    assert said
    assert len(said.splitlines()) == 1


@given(st.text(), st.integers())
def test_any_verification_error_gets_one_line(text: str, code: int) -> None:
    error = ssl.SSLCertVerificationError(text)
    bare = explain_tls_error(error)
    error.verify_code, error.verify_message = code, text
    assert len(explain_tls_error(error).splitlines()) == len(bare.splitlines()) == 1


def test_the_authority_itself_is_no_client(make: Make, tmp_path: Path) -> None:
    files = make()
    write_certificate(files.certificate, AUTHORITY.certificate, force=True)
    write_key(files.key, AUTHORITY.key, force=True)
    shake(server_context(make(Role.SERVER)), client_context(files))
    with pytest.raises(PeerRefused, match="has no llmgw:// URI"):
        verify_peer(AUTHORITY.certificate, NOW, roles=set(Role))


def test_a_broken_signature_is_refused(make: Make) -> None:
    files = make(by=Signer(AUTHORITY.certificate, make_key()))
    server, client = shake(server_context(make(Role.SERVER)), client_context(files))
    assert "another authority than ours" in server.said()
    assert client.said().startswith("the peer refused us: ")

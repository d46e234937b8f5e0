"""Who a certificate is about, and whether that peer may come in: one table."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.certificate import make_key, serial_text
from llmgw_core.pki.identity import NotAnIdentity, PeerRefused, list_names, read_identity, verify_peer

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
KEY = make_key()
NODE03 = "llmgw://node/llmgw-node03"
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


def certificate(
    common_names: Sequence[str] = ("llmgw-node03",),
    uris: Sequence[str] = (NODE03,),
    usages: Sequence[ObjectIdentifier] = (CLIENT,),
    begin: datetime = NOW - DAY,
    end: datetime = NOW + 89 * DAY,
) -> x509.Certificate:
    """Whatever a stranger might hand us; ours would never say most of it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names])
    builder = (
        x509.CertificateBuilder(subject, subject, KEY.public_key(), 0xC0FFEE)
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    if uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(KEY, hashes.SHA256())


@frozen
class Case:
    certificate: x509.Certificate
    said: str
    claimed: str | None = "llmgw-node03"
    revoked: frozenset[str] = frozenset()
    roles: frozenset[Role] = frozenset({Role.NODE})


REFUSED = {
    "the names differ": Case(
        certificate(),
        "node llmgw-node04 refused: its certificate's common name is llmgw-node03",
        claimed="llmgw-node04",
    ),
    "expired": Case(
        certificate(begin=NOW - 92 * DAY, end=NOW - 2 * DAY),
        "node llmgw-node03 refused: its certificate expired on 2026-02-27T12:00:00Z, 2 days ago"
        " (the control plane's clock says 2026-03-01T12:00:00Z); re-run onboarding",
    ),
    "expired operator": Case(
        certificate(["ada"], ["llmgw://operator/ada"], begin=NOW - 92 * DAY, end=NOW - 2 * DAY),
        "operator ada refused: its certificate expired on 2026-02-27T12:00:00Z, 2 days ago (the control plane's clock"
        " says 2026-03-01T12:00:00Z); on the authority's host: llmgw ca renew ada --role operator",
        claimed=None,
        roles=frozenset({Role.OPERATOR, Role.NODE}),
    ),
    "not yet valid": Case(
        certificate(begin=NOW + timedelta(seconds=1035)),
        "node llmgw-node03 refused: its certificate is not yet valid: it begins on 2026-03-01T12:17:15Z and the control"
        " plane's clock says 2026-03-01T12:00:00Z, 17 minutes earlier; that clock is wrong, or the authority's was when"
        " it issued the certificate",
    ),
    "wrong role": Case(
        certificate(),
        "node llmgw-node03 refused: its certificate's role is node, and this needs gateway or operator",
        roles=frozenset({Role.OPERATOR, Role.GATEWAY}),
    ),
    "wrong usage": Case(
        certificate(usages=[SERVER]),
        "node llmgw-node03 refused: its certificate is not for clientAuth, which a node needs",
    ),
    "no usage": Case(
        certificate(usages=[]),
        "node llmgw-node03 refused: its certificate is not for clientAuth, which a node needs",
    ),
    "revoked": Case(
        certificate(),
        "node llmgw-node03 refused: its certificate, serial c0ffee, is revoked",
        revoked=frozenset({"c0ffee"}),
    ),
    "revoked and expired": Case(
        certificate(begin=NOW - 92 * DAY, end=NOW - 2 * DAY),
        "node llmgw-node03 refused: its certificate, serial c0ffee, is revoked",
        revoked=frozenset({"c0ffee"}),
    ),
    "several common names": Case(
        certificate(["llmgw-node03", "admin"]),
        "peer that claims to be llmgw-node03 refused: its certificate has 2 common names, and needs exactly one",
    ),
    "no common name": Case(
        certificate([]),
        "peer refused: its certificate has no common names, and needs exactly one",
        claimed=None,
    ),
    "no llmgw URI": Case(
        certificate(uris=["https://example.org/"]),
        "peer that claims to be llmgw-node03 refused: its certificate has no llmgw:// URI, which would say its role:"
        " llmgw did not issue it",
    ),
    "no alternative names": Case(
        certificate(uris=[]),
        "peer that claims to be llmgw-node03 refused: its certificate has no llmgw:// URI, which would say its role:"
        " llmgw did not issue it",
    ),
    "two llmgw URIs": Case(
        certificate(uris=[NODE03, "LLMGW://operator/llmgw-node03"]),
        "peer that claims to be llmgw-node03 refused: its certificate has 2 llmgw:// URIs, and needs exactly one",
    ),
    "the URI names somebody else": Case(
        certificate(uris=["llmgw://node/llmgw-node04"]),
        "peer that claims to be llmgw-node03 refused: its certificate's common name is llmgw-node03 and its URI"
        " llmgw://node/llmgw-node04",
    ),
    "the URI's role is none": Case(
        certificate(uris=["llmgw://admin/llmgw-node03"]),
        "peer that claims to be llmgw-node03 refused: its certificate's URI llmgw://admin/llmgw-node03 is no"
        " role and name",
    ),
    "the name is none": Case(
        certificate(["gpu1/CN=admin"], ["llmgw://node/gpu1/CN=admin"]),
        "peer that claims to be gpu1/CN=admin refused: its certificate's URI llmgw://node/gpu1/CN=admin is no"
        " role and name",
        claimed="gpu1/CN=admin",
    ),
    "a claim with a line break": Case(
        certificate(),
        "node 'llmgw\\nnode03' refused: its certificate's common name is llmgw-node03",
        claimed="llmgw\nnode03",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_peer_that_may_not_come_in_is_told_why_in_one_line(case: Case) -> None:
    with pytest.raises(PeerRefused) as caught:
        verify_peer(case.certificate, NOW, roles=case.roles, revoked=case.revoked, claimed=case.claimed)
    assert str(caught.value) == case.said
    assert str(caught.value) == f"{caught.value.who} refused: {caught.value.reason}"


@pytest.mark.parametrize("claimed", ["llmgw-node03", None])
def test_a_peer_that_is_who_it_says_comes_in(claimed: str | None) -> None:
    seen = verify_peer(certificate(), NOW, roles={Role.NODE}, revoked={"beef"}, claimed=claimed)
    assert seen == Identity(Role.NODE, "llmgw-node03")
    assert serial_text(certificate()) == "c0ffee"


@pytest.mark.parametrize("moment", [NOW - DAY, NOW + 89 * DAY])
def test_the_first_and_the_last_second_of_a_life_count(moment: datetime) -> None:
    assert verify_peer(certificate(), moment, roles={Role.NODE}).name == "llmgw-node03"


def test_a_uri_of_another_system_does_no_harm() -> None:
    assert read_identity(certificate(uris=["spiffe://example.org/gpu", NODE03])).name == "llmgw-node03"


@given(
    st.lists(st.text(min_size=1, max_size=64), max_size=2),
    st.lists(st.text("lmgw:/node3-\0\n%?#", max_size=30), max_size=2),
)
def test_reading_any_certificate_gives_an_identity_or_one_line(names: list[str], uris: list[str]) -> None:
    made = _made_or_none(lambda: certificate(names, uris))
    if made is None:
        return
    assert all(name.isprintable() for name in list_names(made))
    assert len(_said_of(made).splitlines()) == 1


def _said_of(made: x509.Certificate) -> str:
    try:
        return str(read_identity(made))
    except NotAnIdentity as error:
        return str(error)


def _made_or_none(make: Callable[[], x509.Certificate]) -> x509.Certificate | None:
    try:
        return make()
    except ValueError:  # the library does not make each of them
        return None

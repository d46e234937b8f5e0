"""What a certificate says, and what cannot be made to say anything else."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import BadName, Identity, Role
from llmgw_core.pki.certificate import (
    BadRequest,
    BadSerial,
    CannotIssue,
    Order,
    Signer,
    make_authority_certificate,
    make_key,
    make_leaf,
    make_request,
    parse_serial,
    read_request,
    serial_text,
)
from llmgw_core.pki.identity import list_names, read_identity
from llmgw_core.pki.names import AlternativeNames, BadAddress, parse_names
from llmgw_core.pki.validity import (
    cut_life,
    days_left,
    describe_left,
    describe_span,
    expiry_warning,
    renewal_due,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)
DAY = timedelta(days=1)
CA_KEY, LEAF_KEY = make_key(), make_key()
SIGNER = Signer(make_authority_certificate("llmgw-authority", CA_KEY, NOW), CA_KEY)
SERVER_NAMES = parse_names(["llmgw"], ["10.0.0.140", "fd00::7"])


def leaf(role: Role = Role.NODE, name: str = "llmgw-node04", days: int = 90, now: datetime = NOW) -> x509.Certificate:
    names = SERVER_NAMES if role is Role.SERVER else AlternativeNames()
    return make_leaf(Order(Identity(role, name), names, days), LEAF_KEY.public_key(), SIGNER, now)


def test_the_authority_signs_leaves_and_nothing_else() -> None:
    certificate = SIGNER.certificate
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert limits.critical
    assert (limits.value.ca, limits.value.path_length) == (True, 0)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.digital_signature) == (True, False)
    certificate.verify_directly_issued_by(certificate)


@pytest.mark.parametrize(
    ("role", "usage"),
    [
        (Role.NODE, ExtendedKeyUsageOID.CLIENT_AUTH),
        (Role.OPERATOR, ExtendedKeyUsageOID.CLIENT_AUTH),
        (Role.GATEWAY, ExtendedKeyUsageOID.CLIENT_AUTH),
        (Role.SERVER, ExtendedKeyUsageOID.SERVER_AUTH),
    ],
)
def test_a_leaf_says_its_role_and_may_do_one_thing(role: Role, usage: x509.ObjectIdentifier) -> None:
    certificate = leaf(role)
    extensions = certificate.extensions
    assert certificate.version is x509.Version.v3
    assert read_identity(certificate) == Identity(role, "llmgw-node04")
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature
    issuer = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    subject = SIGNER.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert issuer == subject
    certificate.verify_directly_issued_by(SIGNER.certificate)


def test_addresses_are_addresses_and_names_are_names() -> None:
    names = leaf(Role.SERVER).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["llmgw"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("10.0.0.140"), ip_address("fd00::7")]
    assert list_names(leaf(Role.SERVER)) == ("DNS:llmgw", "IP:10.0.0.140", "IP:fd00::7")


def test_a_leaf_begins_five_minutes_back_and_is_good_for_its_days() -> None:
    certificate = leaf(days=90)
    assert certificate.not_valid_before_utc == datetime(2026, 3, 1, 11, 55, tzinfo=UTC)
    assert certificate.not_valid_after_utc == datetime(2026, 5, 30, 12, 0, tzinfo=UTC)


def test_no_leaf_outlives_its_authority() -> None:
    certificate = leaf(days=90, now=NOW + 3600 * DAY)
    assert certificate.not_valid_after_utc == SIGNER.certificate.not_valid_after_utc
    end = SIGNER.certificate.not_valid_after_utc
    assert cut_life(end - DAY, end) == (end - DAY, None)
    until, said = cut_life(end + DAY, end)
    assert until == end
    assert said == ("the certificate ends on 2036-02-27T12:00:00Z, with its authority, and not on 2036-02-28T12:00:00Z")


def test_an_authority_that_has_ended_issues_nothing() -> None:
    with pytest.raises(CannotIssue, match=r"own certificate expired on 2036-02-27T12:00:00Z; make a new authority"):
        leaf(now=NOW + 3651 * DAY)


def test_a_clock_before_the_authority_began_issues_nothing_and_says_both_times() -> None:
    with pytest.raises(CannotIssue, match=r"begins on 2026-03-01T11:55:00Z .* clock says 1970-01-01T00:00:00Z"):
        leaf(now=datetime(1970, 1, 1, tzinfo=UTC))


def test_serials_are_random() -> None:
    serials = {serial_text(leaf()) for _ in range(20)}
    assert len(serials) == 20
    assert all(len(serial) > 30 for serial in serials)


def test_a_server_needs_a_name_or_an_address_and_nobody_else_may_have_one() -> None:
    with pytest.raises(CannotIssue, match="needs at least one --ip or --dns"):
        Order(Identity(Role.SERVER, "control"))
    with pytest.raises(CannotIssue, match="are for servers"):
        Order(Identity(Role.NODE, "llmgw-node04"), SERVER_NAMES)
    with pytest.raises(CannotIssue, match="for 0 days"):
        Order(Identity(Role.NODE, "llmgw-node04"), life_days=0)


@pytest.mark.parametrize(
    "name", ["gpu1/CN=admin", "gpu1,O=x", "gpu1\nX", "gpu1\n", "", "-a", "A", "a.b", "é", "a" * 64]
)
@pytest.mark.parametrize("role", Role)
def test_f18_names_that_would_say_more_are_no_names(role: Role, name: str) -> None:
    with pytest.raises(BadName):
        Identity(role, name)
    with pytest.raises(BadName):
        make_authority_certificate(name, CA_KEY, NOW)


@given(st.text(max_size=70))
def test_any_name_either_stands_alone_in_the_certificate_or_is_refused(name: str) -> None:
    try:
        identity = Identity(Role.NODE, name)
    except BadName:
        return
    certificate = make_leaf(Order(identity), LEAF_KEY.public_key(), SIGNER, NOW)
    assert [attribute.value for attribute in certificate.subject] == [name]
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert read_identity(certificate) == identity


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True), st.sampled_from(Role))
def test_every_dns_label_can_be_a_name(name: str, role: Role) -> None:
    assert read_identity(leaf(role, name)) == Identity(role, name)


@pytest.mark.parametrize(
    ("dns", "ip", "said"),
    [
        ("10.0.0.140", "", "is an IP address, not a DNS name: give it as --ip"),
        ("fd00::7", "", "give it as --ip"),
        ("*.example.org", "", "is no DNS name"),
        ("a b", "", "is no DNS name"),
        ("a..b", "", "is no DNS name"),
        ("10.0.0", "", "is no DNS name"),
        ("x\n", "", "is no DNS name"),
        ("b" * 63 + (".b" * 100), "", "is no DNS name"),
        ("", "", "is no DNS name"),
        ("llmgw", "llmgw", "'llmgw' is no IP address: give a name as --dns"),
        ("llmgw", "10.0.0.0/8", "is no IP address"),
        ("llmgw", "fe80::1%eth0", "leave out %eth0"),
    ],
)
def test_names_and_addresses_that_cannot_stand_in_a_certificate(dns: str, ip: str, said: str) -> None:
    with pytest.raises((BadName, BadAddress), match=said.replace("*", r"\*")):
        parse_names([dns], [ip] if ip else [])


@given(st.lists(st.text(max_size=80)), st.lists(st.text(max_size=40)))
def test_any_names_are_taken_or_refused_with_a_reason(dns: list[str], ips: list[str]) -> None:
    try:
        names = parse_names(dns, ips)
    except LlmgwError:
        return
    assert all(name.isascii() for name in names.dns)


def test_names_are_kept_once_in_order_and_in_small_letters() -> None:
    assert str(parse_names(["B.example", "a", "b.example"], ["::1", "0:0::1"])) == "DNS:b.example, DNS:a, IP:::1"


def test_a_request_gives_its_key_and_no_name() -> None:
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(LEAF_KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    for request in (greedy, make_request(LEAF_KEY)):
        key = read_request(request)
        assert key == LEAF_KEY.public_key()
        certificate = make_leaf(Order(Identity(Role.NODE, "llmgw-node04")), key, SIGNER, NOW)
        assert read_identity(certificate).name == "llmgw-node04"
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_request_must_prove_its_key() -> None:
    request = x509.load_pem_x509_csr(make_request(LEAF_KEY)).public_bytes(serialization.Encoding.DER)
    other = x509.load_pem_x509_csr(make_request(CA_KEY)).public_bytes(serialization.Encoding.DER)
    point = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    forged = request.replace(LEAF_KEY.public_key().public_bytes(*point), CA_KEY.public_key().public_bytes(*point))
    assert forged not in (request, other)
    pem = x509.load_der_x509_csr(forged).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(BadRequest, match="does not prove to have it"):
        read_request(pem)


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())])
def test_a_request_with_another_kind_of_key_is_refused(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    with pytest.raises(BadRequest, match="not ECDSA P-256"):
        read_request(request.public_bytes(serialization.Encoding.PEM))


@given(st.binary(max_size=200))
def test_any_request_is_read_or_refused(request: bytes) -> None:
    with pytest.raises(BadRequest):
        read_request(request)


END = datetime(2026, 5, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before_end", "days", "left", "warning"),
    [
        (31 * DAY, 31, "31 days", None),
        (30 * DAY, 30, "30 days", "renew it soon"),
        (7 * DAY, 7, "7 days", "renew it this week"),
        (DAY, 1, "1 day", "renew it today"),
        (timedelta(hours=5), 0, "5 hours", "renew it today"),
        (timedelta(seconds=-1), -1, "expired 1 second ago", "expired on 2026-05-30T12:00:00Z"),
        (-2 * DAY, -2, "expired 2 days ago", "expired on 2026-05-30T12:00:00Z, 2 days ago"),
    ],
)
def test_what_is_left_of_a_life(before_end: timedelta, days: int, left: str, warning: str | None) -> None:
    now = END - before_end
    said = expiry_warning(END, now)
    assert days_left(END, now) == days
    assert describe_left(END, now) == left
    assert said is None if warning is None else warning in str(said)


def test_renewal_is_due_at_two_thirds() -> None:
    begin = END - 90 * DAY
    assert not renewal_due(begin, END, begin + 59 * DAY)
    assert renewal_due(begin, END, begin + 60 * DAY)


def test_a_span_is_told_in_its_largest_unit() -> None:
    assert describe_span(timedelta(seconds=-1035)) == "17 minutes"
    assert describe_span(timedelta(0)) == "0 seconds"


@pytest.mark.parametrize("pasted", ["4fbb01", "4F:BB:01", "0x4fbb01", " 4f bb 01\n", "0X004FBB01", "00:4f:bb:01"])
def test_a_serial_is_read_as_people_paste_it(pasted: str) -> None:
    assert parse_serial(pasted) == "4fbb01"


@pytest.mark.parametrize("nonsense", ["", "0", "gpu1", "0x", "4f-bb", "f" * 41, "é", "\0"])
def test_a_text_that_is_no_serial_is_refused_in_one_line(nonsense: str) -> None:
    with pytest.raises(BadSerial, match=r"^.* is no serial: "):
        parse_serial(nonsense)

"""The authority on disk: what it keeps, what it refuses, and what it survives."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.authority import Authority, NoAuthority
from llmgw_core.pki.certificate import BadRequest, CannotIssue, Order, fingerprint, make_key, make_request, serial_text
from llmgw_core.pki.delivery import Delivery, NameTaken, prepare_delivery, write_delivery
from llmgw_core.pki.files import FileExists, read_pair
from llmgw_core.pki.identity import list_names, read_identity
from llmgw_core.pki.names import parse_names
from llmgw_core.pki.record import BadRecord, CannotRecord

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
NODE = Identity(Role.NODE, "llmgw-node04")
SERVER = Identity(Role.SERVER, "control")
SERVER_NAMES = parse_names(["llmgw"], ["10.0.0.140"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", NOW)


def test_it_is_opened_as_it_was_made(authority: Authority) -> None:
    opened = Authority.open(authority.directory)
    assert opened.certificate == authority.certificate
    assert opened.issue(Order(NODE), NOW).certificate.issuer == authority.certificate.subject
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in authority.directory.iterdir()} == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "issued.jsonl": 0o600,
    }
    assert stat.S_IMODE(authority.directory.stat().st_mode) == 0o700


def test_a_second_one_takes_force_and_then_starts_with_nothing_issued(authority: Authority) -> None:
    authority.issue(Order(NODE), NOW)
    with pytest.raises(FileExists, match="--force replaces it"):
        Authority.create(authority.directory, NOW)
    assert Authority.open(authority.directory).certificate == authority.certificate
    new = Authority.create(authority.directory, NOW, force=True)
    assert new.certificate != authority.certificate
    assert new.issued() == ()
    assert len(authority.issued()) == 1, "the old records are kept"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("rm -r {0}", "there is no authority in .*; `llmgw ca init` makes one, --dir names another"),
        ("rm {0}/ca.key", "cannot read the key .*ca.key: No such file"),
        ("rm {0}/ca.crt", "cannot read the certificate .*ca.crt: No such file"),
        (": > {0}/ca.crt", "is no certificate in PEM form: it is empty"),
        ("chmod 644 {0}/ca.key", "is open to others .mode 0644.: chmod 600"),
    ],
)
def test_one_that_cannot_be_used_says_why(authority: Authority, spoil: str, said: str) -> None:
    subprocess.run(["sh", "-c", spoil.format(authority.directory)], check=True)
    with pytest.raises(NoAuthority, match=said):
        Authority.open(authority.directory)


def test_what_is_issued_is_recorded_in_full(authority: Authority) -> None:
    issued = authority.issue(Order(SERVER, SERVER_NAMES), NOW)
    (record,) = Authority.open(authority.directory).issued()
    assert record == issued.record
    assert record.serial == serial_text(issued.certificate)
    assert record.fingerprint == fingerprint(issued.certificate)
    assert (record.identity, record.names) == (SERVER, SERVER_NAMES)
    assert (record.not_before, record.not_after) == (NOW - timedelta(minutes=5), NOW + 90 * DAY)


def test_a_renewal_takes_the_names_of_the_latest_certificate_and_the_requests_key(authority: Authority) -> None:
    authority.issue(Order(SERVER, parse_names(["old"], [])), NOW)
    authority.issue(Order(SERVER, SERVER_NAMES), NOW)
    authority.issue(Order(NODE), NOW)
    key = make_key()
    renewed = authority.renew(SERVER, make_request(key), NOW + 60 * DAY)
    assert renewed.key is None
    assert renewed.certificate.public_key() == key.public_key()
    assert read_identity(renewed.certificate) == SERVER
    assert list_names(renewed.certificate) == ("DNS:llmgw", "IP:10.0.0.140")
    assert authority.latest(SERVER) == renewed.record


def test_a_renewal_needs_a_certificate_to_renew_and_a_request(authority: Authority) -> None:
    with pytest.raises(CannotIssue, match="no certificate was issued to it; llmgw ca issue node llmgw-node04"):
        authority.renew(NODE, make_request(make_key()), NOW)
    with pytest.raises(BadRequest):
        authority.renew(NODE, b"hello", NOW)
    assert authority.issued() == ()


def test_f20_the_authoritys_own_end_is_told_from_90_days_before_and_stops_it(authority: Authority) -> None:
    end = authority.certificate.not_valid_after_utc
    assert authority.issue(Order(NODE), end - 91 * DAY).warnings == ()
    warnings = authority.issue(Order(NODE), end - 89 * DAY).warnings
    assert warnings == (
        "the certificate ends on 2036-02-27T12:00:00Z, with its authority, and not on 2036-02-28T12:00:00Z",
        "the authority's own certificate ends in 89 days, on 2036-02-27T12:00:00Z, and all others with it",
    )
    with pytest.raises(CannotIssue, match="expired on 2036-02-27"):
        authority.issue(Order(NODE), end + DAY)
    assert len(authority.issued()) == 2


ISSUE_MANY = """
import sys
from datetime import datetime
from pathlib import Path
from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.authority import Authority
from llmgw_core.pki.certificate import Order
authority = Authority.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    authority.issue(Order(Identity(Role.NODE, f"{sys.argv[2]}-{number}")), datetime.fromisoformat(sys.argv[3]))
"""


def test_processes_that_issue_at_once_lose_no_record(authority: Authority) -> None:
    arguments = [sys.executable, "-c", ISSUE_MANY, str(authority.directory)]
    running = [
        subprocess.Popen(
            [*arguments, name, NOW.isoformat()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for name in ("a", "b", "c")
    ]
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in running:
        each.communicate("go\n", timeout=60)
    assert [each.returncode for each in running] == [0, 0, 0]
    names = [record.identity.name for record in authority.issued()]
    assert sorted(names) == sorted(f"{process}-{number}" for process in "abc" for number in range(25))
    assert len({record.serial for record in authority.issued()}) == 75


def test_a_line_that_a_crash_cut_short_is_no_record_and_gives_way_to_the_next(authority: Authority) -> None:
    authority.issue(Order(NODE), NOW)
    record = authority.directory / "issued.jsonl"
    whole = record.read_bytes()
    for cut in (1, 40, len(whole) - 1):
        record.write_bytes(whole + whole[:cut])
        assert len(authority.issued()) == 1
    authority.issue(Order(NODE), NOW)
    assert len(authority.issued()) == 2
    assert record.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("line", ["{}", "nonsense", "[]", "null", '{"serial": 1, "role": "king"}', "\xff"])
def test_a_line_that_cannot_be_read_is_named(authority: Authority, line: str) -> None:
    authority.issue(Order(NODE), NOW)
    record = authority.directory / "issued.jsonl"
    record.write_bytes(line.encode("latin-1") + b"\n" + record.read_bytes())
    with pytest.raises(BadRecord, match=r"issued.jsonl:1: cannot read the record"):
        authority.issued()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_issues_nothing_and_keeps_the_record_whole(small_disk: Path) -> None:
    authority = Authority.create(small_disk / "ca", NOW)
    fill(small_disk / "fill")
    with pytest.raises(CannotRecord, match=r"No space left on device; nothing was issued"):
        issue_for_ever(authority)
    issued = len(authority.issued())
    assert (authority.directory / "issued.jsonl").read_bytes().count(b"\n") == issued
    (small_disk / "fill").unlink()
    authority.issue(Order(NODE), NOW)
    assert len(authority.issued()) == issued + 1


def test_a_full_disk_leaves_no_half_of_an_authority(small_disk: Path) -> None:
    fill(small_disk / "fill")
    with pytest.raises(Exception, match=r"^cannot .*No space left on device"):
        Authority.create(small_disk / "ca", NOW)
    assert not [path for path in small_disk.rglob("*") if path.name != "fill" and path.is_file()]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def issue_for_ever(authority: Authority) -> None:
    while True:
        authority.issue(Order(NODE), NOW)


def test_a_delivery_is_a_pair_and_the_root(authority: Authority, tmp_path: Path) -> None:
    delivery = Delivery(tmp_path / "out", "llmgw-node04")
    prepare_delivery(delivery, authority)
    issued = authority.issue(Order(NODE), NOW)
    paths = write_delivery(delivery, authority, issued)
    assert paths == (delivery.certificate, delivery.key, delivery.authority)
    assert read_pair(delivery.certificate, delivery.key).certificate == issued.certificate
    assert delivery.authority.read_bytes() == (authority.directory / "ca.crt").read_bytes()


def test_a_delivery_is_refused_before_anything_is_issued(authority: Authority, tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "llmgw-node04")
    delivery.key.write_text("mine")
    with pytest.raises(FileExists):
        prepare_delivery(delivery, authority)
    prepare_delivery(delivery, authority, force=True)
    delivery.key.unlink()
    delivery.authority.write_text("another root")
    with pytest.raises(FileExists, match=r"ca.crt"):
        prepare_delivery(delivery, authority)
    with pytest.raises(NameTaken):
        Delivery(tmp_path, "ca")


def test_several_deliveries_share_a_directory_and_its_root(authority: Authority, tmp_path: Path) -> None:
    for name in ("a", "b"):
        delivery = Delivery(tmp_path, name)
        prepare_delivery(delivery, authority)
        write_delivery(delivery, authority, authority.issue(Order(Identity(Role.NODE, name)), NOW))
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["a.crt", "a.key", "b.crt", "b.key", "ca.crt"]


def test_the_record_is_readable_by_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        authority = Authority.create(tmp_path / "ca", NOW)
        authority.issue(Order(NODE), NOW)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "ca" / "issued.jsonl").stat().st_mode) == 0o600

"""A pair of certificate and key is replaced as one, whatever happens in between."""

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llmgw_core.model.identity import Identity, Role
from llmgw_core.net.renewal import Renewal, finish_replacing, replace_pair
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.pki.authority import Authority
from llmgw_core.pki.certificate import Order, make_key, make_request, serial_text
from llmgw_core.pki.delivery import Delivery, prepare_delivery, write_delivery
from llmgw_core.pki.files import BadCredentials, certificate_pem, read_pair
from llmgw_core.wire.message import CertificateRenewed

NOW = datetime(2026, 11, 30, tzinfo=UTC)
GPU1 = Identity(Role.NODE, "gpu1")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", NOW - timedelta(days=100))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> CredentialFiles:
    delivery = Delivery(tmp_path / "pki", "gpu1")
    prepare_delivery(delivery, authority, force=False)
    write_delivery(delivery, authority, authority.issue(Order(GPU1), NOW - timedelta(days=70)), force=False)
    return CredentialFiles(tmp_path / "pki/gpu1.crt", tmp_path / "pki/gpu1.key", tmp_path / "pki/ca.crt")


def serial(files: CredentialFiles) -> str:
    return serial_text(read_pair(files.certificate, files.key).certificate)


def test_a_new_pair_takes_the_old_ones_place(authority: Authority, files: CredentialFiles) -> None:
    before, key = serial(files), make_key()
    renewed = authority.renew(GPU1, make_request(key), NOW)
    replace_pair(files, key, certificate_pem(renewed.certificate).decode())
    assert serial(files) == serial_text(renewed.certificate) != before
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in files.key.parent.iterdir()) == ["ca.crt", "gpu1.crt", "gpu1.key"]


def test_a_certificate_for_somebody_else_or_for_another_key_changes_nothing(
    authority: Authority, files: CredentialFiles
) -> None:
    before = serial(files)
    other = authority.issue(Order(Identity(Role.NODE, "gpu2")), NOW)
    mine = authority.renew(GPU1, make_request(make_key()), NOW)
    for certificate in (other.certificate, mine.certificate):
        with pytest.raises(BadCredentials):
            replace_pair(files, make_key(), certificate_pem(certificate).decode())
        assert serial(files) == before


def test_a_crash_between_the_two_moves_is_finished_at_the_next_start(
    authority: Authority, files: CredentialFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key()
    renewed = authority.renew(GPU1, make_request(key), NOW)
    move = os.replace

    def crash(source: Path, target: Path) -> None:
        if target == files.certificate:
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setattr("llmgw_core.net.renewal.os.replace", crash)
    with pytest.raises(KeyboardInterrupt):
        replace_pair(files, key, certificate_pem(renewed.certificate).decode())
    monkeypatch.undo()
    with pytest.raises(BadCredentials):
        serial(files)
    finish_replacing(files)
    assert serial(files) == serial_text(renewed.certificate)


def test_nothing_is_finished_that_was_not_begun(files: CredentialFiles) -> None:
    before = serial(files)
    finish_replacing(files)
    files.certificate.with_name("gpu1.crt.new").write_text("not a certificate")
    finish_replacing(files)
    assert serial(files) == before


def test_an_answer_without_a_certificate_is_logged_and_nothing_else(
    files: CredentialFiles, caplog: pytest.LogCaptureFixture
) -> None:
    before = serial(files)
    Renewal(files, logging.getLogger("llmgw.agent")).take(CertificateRenewed(reason="the authority is elsewhere"))
    assert serial(files) == before
    assert "certificate not renewed" in caplog.text

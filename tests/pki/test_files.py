"""Keys and certificates on disk: whole or not at all, never by accident over another; errors say what is wrong."""

import errno
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from llmgw_core.pki.certificate import make_authority_certificate, make_key, make_request
from llmgw_core.pki.files import (
    BadCredentials,
    CannotWrite,
    FileExists,
    NewFile,
    certificate_pem,
    describe_open_key,
    key_pem,
    make_directory,
    read_certificate,
    read_key,
    read_pair,
    write_certificate,
    write_files,
    write_key,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEY = make_key()
CERTIFICATE = make_authority_certificate("llmgw-authority", KEY, NOW)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_key_is_its_owners_alone_and_a_certificate_is_for_all_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        make_directory(tmp_path / "new")
        write_key(tmp_path / "x.key", KEY)
        write_certificate(tmp_path / "x.crt", CERTIFICATE)
    finally:
        os.umask(old)
    assert mode(tmp_path / "x.key") == 0o600
    assert mode(tmp_path / "x.crt") == 0o644
    assert mode(tmp_path / "new") == 0o700


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_key(tmp_path / "x.key", KEY)
    write_certificate(tmp_path / "x.crt", CERTIFICATE)
    pair = read_pair(tmp_path / "x.crt", tmp_path / "x.key")
    assert pair.certificate == CERTIFICATE
    assert pair.key.private_numbers() == KEY.private_numbers()
    assert "PrivateKey" not in repr(pair)


def test_a_file_that_exists_is_kept_and_the_way_out_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    path.write_text("mine")
    with pytest.raises(FileExists, match=r"^cannot write .*/x.key: it exists; --force replaces it$"):
        write_key(path, KEY)
    assert path.read_text() == "mine"
    write_key(path, KEY, force=True)
    assert read_key(path).public_key() == KEY.public_key()
    assert [each.name for each in tmp_path.iterdir()] == ["x.key"]


def test_a_dangling_link_counts_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExists):
        write_key(tmp_path / "x.key", KEY)
    assert not (tmp_path / "elsewhere").exists()


def test_of_several_files_none_is_written_when_one_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(FileExists):
        write_files([NewFile(tmp_path / "a", b"new"), NewFile(tmp_path / "b", b"new")])
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


def test_of_several_files_none_is_written_when_one_has_no_place(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match=r"cannot write .*/none/b: No such file or directory"):
        write_files([NewFile(tmp_path / "a", b"new"), NewFile(tmp_path / "none" / "b", b"new")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    write_key(tmp_path / "x.key", KEY)
    assert mode(tmp_path / "x.key") == 0o600
    with pytest.raises(FileExists):
        write_key(tmp_path / "x.key", KEY)


RSA = rsa.generate_private_key(65537, 2048)
PRIVATE = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the key .*: No such file or directory"),
        (b"", "is no private key in PEM form: it is empty"),
        (b"\x00\xff", "is no private key in PEM form$"),
        (certificate_pem(CERTIFICATE), "is no private key in PEM form: it holds a certificate"),
        (make_request(KEY), "is no private key in PEM form: it holds a signing request"),
        (RSA.private_bytes(*PRIVATE, serialization.NoEncryption()), "is not an ECDSA key"),
        (KEY.private_bytes(*PRIVATE, serialization.BestAvailableEncryption(b"x")), "is a key with a password"),
    ],
)
def test_a_key_that_cannot_be_used_is_told_apart(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "x.key").write_bytes(content)
    with pytest.raises(BadCredentials, match=said):
        read_key(tmp_path / "x.key")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the certificate .*: No such file or directory"),
        (b"hello", "is no certificate in PEM form$"),
        (key_pem(KEY), "is no certificate in PEM form: it holds a private key"),
        (certificate_pem(CERTIFICATE)[:200], "is no certificate in PEM form"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told_apart(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "x.crt").write_bytes(content)
    with pytest.raises(BadCredentials, match=said):
        read_certificate(tmp_path / "x.crt")


def test_a_key_of_another_certificate_is_noticed(tmp_path: Path) -> None:
    write_key(tmp_path / "x.key", make_key())
    write_certificate(tmp_path / "x.crt", CERTIFICATE)
    with pytest.raises(BadCredentials, match=r"the key .*x.key does not belong to the certificate .*x.crt"):
        read_pair(tmp_path / "x.crt", tmp_path / "x.key")


def test_a_key_that_others_can_read_is_told_with_the_way_to_close_it(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    assert describe_open_key(path) is None
    write_key(path, KEY)
    assert describe_open_key(path) is None
    path.chmod(0o640)
    assert describe_open_key(path) == f"the key {path} is open to others (mode 0640): chmod 600 {path}"

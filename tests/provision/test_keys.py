"""Which lines of an authorized_keys file are keys."""

import base64

import pytest

from llmgw_core.provision.keys import parse_authorized_keys


def blob(kind: str) -> str:
    return base64.b64encode(len(kind).to_bytes(4, "big") + kind.encode() + bytes(36)).decode()


def key(kind: str = "ssh-ed25519") -> str:
    return f"{kind} {blob(kind)}"


@pytest.mark.parametrize(
    "line",
    [
        key(),
        key("ssh-rsa") + " root@pve",
        key("ecdsa-sha2-nistp256"),
        key("sk-ssh-ed25519@openssh.com") + " a token",
        key() + " comment with # and : and 'quotes' ünï",
        f'from="10.0.0.0/8",command="echo \\"hi there\\"" {key()} x',
        f"no-pty {key()}",
    ],
)
def test_a_key_is_kept_as_it_is(line: str) -> None:
    assert parse_authorized_keys(f"# a comment\n\n{line}\r\n") == ((line,), ())


@pytest.mark.parametrize(
    "line",
    ["hello", "ssh-ed25519", "ssh-ed25519 AAAA", f"ssh-rsa {blob('ssh-ed25519')}", f"{key()[:-8]}!!", "-----BEGIN KEY"],
)
def test_what_is_no_key_is_named_by_its_line(line: str) -> None:
    assert parse_authorized_keys(f"{key()}\n{line}\n") == ((key(),), (2,))


def test_a_key_that_stands_twice_is_one() -> None:
    assert parse_authorized_keys(f"{key()}\n{key()}\n") == ((key(),), ())


def test_an_empty_file_has_no_keys() -> None:
    assert parse_authorized_keys("") == ((), ())

"""The words that ssh is run with, and what becomes of a machine's own words among a command's."""

import os
import subprocess
from pathlib import Path

import pytest

from llmgw_core.onboard.request import Login
from llmgw_core.onboard.ssh import BEGINS, NotReached, Session, ssh_words
from llmgw_core.onboard.words import explain_ssh

SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOGIN = Login(address="10.0.0.144")


def a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Session:
    """With a client that gives the command's line, its last word, to that script."""
    client = tmp_path / "ssh"
    client.write_text(f"#!/bin/sh\nfor line; do :; done\n{script}\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Session(LOGIN, tmp_path / "known", (), str(tmp_path))


GREETINGS = {
    "none": "",
    "lines": "echo Welcome; echo root=no",
    "no line's end": "printf 'hi '",
    "on stderr": "echo 'access denied' >&2",
    "a short PATH, a mask and another place": "PATH=/usr/bin; umask 077; cd /tmp; LC_ALL=xx",
}


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
def test_what_a_login_says_and_sets_is_no_part_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: str
) -> None:
    session = a_session(tmp_path, monkeypatch, f'{greeting}\neval "$line"')
    ended = session.run(("sh", "-c", 'echo "$1 $(umask) $PWD $LC_ALL $PATH"; exit 3', "sh", "it's"), 20.0)
    assert (ended.code, ended.stdout) == (3, f"it's 0022 / C {SYSTEM}\n")


def test_what_sudo_sets_does_not_count_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = a_session(tmp_path, monkeypatch, 'eval "$line"')
    session.become = ("env", "-i", "PATH=/usr/bin", "sh", "-c", 'umask 077; exec "$@"', "sudo")
    ended = session.run_as_root(("sh", "-c", 'echo "$PATH $(umask)"'), 20.0)
    assert ended.stdout == f"{SYSTEM} 0022\n"


def test_what_comes_from_no_shell_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = a_session(tmp_path, monkeypatch, 'echo "Please login as ubuntu"; exit 142')
    ended = session.run(("true",), 20.0)
    assert (ended.code, ended.stdout) == (142, "Please login as ubuntu\n")
    assert BEGINS not in ended.stdout


@pytest.mark.parametrize(
    ("said", "told"), [("", "in the middle: did"), ("client_loop: broken", "(client_loop: broken)")]
)
def test_a_connection_that_ends_in_the_middle_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    session = a_session(tmp_path, monkeypatch, f"echo '{said}' >&2; exit 255")
    with pytest.raises(NotReached, match="has ended in the middle") as caught:
        session.run(("true",), 20.0)
    assert told in str(caught.value)


def test_a_banners_words_explain_nothing() -> None:
    banner = "UNAUTHORIZED ACCESS IS ADMINISTRATIVELY PROHIBITED. Idle connections: connection closed, timed out.\n"
    told = explain_ssh(LOGIN, f"{banner}root@10.0.0.144: Permission denied (publickey).\n", "k")
    assert "it takes no key of ours for that user" in told
    told = explain_ssh(LOGIN, f"WARNING: UNPROTECTED PRIVATE KEY FILE!\n{banner}Permission denied (publickey).\n", "k")
    assert "chmod 600" in told


@pytest.mark.parametrize(
    "address", ["::1", "2001:db8::5", "fe80::1%eth0", "::ffff:10.0.0.1", "10.0.0.1", "gpu1.example"]
)
def test_every_kind_of_address_can_be_named(address: str) -> None:
    assert Login(address=address).problems() == ()


@pytest.mark.parametrize("address", ["", "-x", "a b", "[::1]", "::1%", "fe80::1%e/h", "fe80::1%-o x", "a\n"])
def test_what_is_no_address_is_not_given_to_ssh(address: str) -> None:
    assert len(Login(address=address).problems()) == 1


def test_an_older_client_that_lacks_an_option_is_not_stopped_by_it() -> None:
    words = list(ssh_words(LOGIN, "/p", "yes"))
    words[-2:-2] = ["-o", "AnOptionOfLater=yes"]
    ended = subprocess.run([words[0], "-G", *words[1:]], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "batchmode yes" in ended.stdout


def test_a_keys_path_is_given_as_ssh_reads_it() -> None:
    """ssh_config(5), TOKENS."""
    words = ssh_words(Login(address="h", identity="/root/my 100%h"), "/p", "yes")
    assert words[words.index("-i") + 1] == "/root/my 100%%h"

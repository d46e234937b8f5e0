"""Host keys: lines of a known_hosts file, and what is said when one changed."""

import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from llmgw_core.errors import LlmgwError
from llmgw_core.onboard import ssh
from llmgw_core.onboard.known_hosts import fingerprint_of, is_key, is_named, lines_of, with_lines
from llmgw_core.onboard.request import Login
from llmgw_core.onboard.ssh import Session, remember_keys, ssh_words
from llmgw_core.onboard.words import explain_ssh
from llmgw_core.testing.ssh_machine import make_key

LOGIN = Login(address="10.0.0.144")
CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
The fingerprint for the ED25519 key sent by the remote host is
SHA256:uNiVztksCsDhcc0u9e8BrrQtSW2XuvU5ZFcnvL1XfWY.
Host key verification failed.
"""


def test_a_fingerprint_is_the_one_that_ssh_keygen_prints(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    public = (tmp_path / "key.pub").read_text()
    said = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], check=True, capture_output=True, text=True)
    assert fingerprint_of(public) == f"ED25519 {said.stdout.split()[1]}"
    assert fingerprint_of(f"10.0.0.144 {public}") == fingerprint_of(public)
    line = f"10.0.0.144 {public}"
    assert all(is_named([line], wanted) for wanted in (public, said.stdout.split()[1], fingerprint_of(public)))
    assert not is_named([line], "SHA256:other")
    assert is_key(public)
    assert not is_key("whatever")


def test_a_key_is_known_by_what_the_operator_wrote_whatever_the_users_own_configuration_says() -> None:
    words = ssh_words(Login(address="Node04", port=2222, user="ops", identity="/k"), "/tmp/p", "yes")
    assert "HostKeyAlias=[node04]:2222" in words
    assert words[-2:] == ("--", "Node04")
    assert "NoHostAuthenticationForLocalhost=no" in words
    checking = [word for word in words if word.startswith("StrictHostKeyChecking=")]
    assert checking == ["StrictHostKeyChecking=yes"]


def test_a_hosts_lines_are_those_of_its_very_name() -> None:
    text = "10.0.0.14 a 1\n10.0.0.144 b 2\n[10.0.0.144]:2222 c 3\n"
    assert lines_of(text, "10.0.0.144") == ("10.0.0.144 b 2",)
    assert lines_of(text, Login(address="10.0.0.144", port=2222).known_name) == ("[10.0.0.144]:2222 c 3",)
    assert with_lines(text, ["10.0.0.144 b 2", "x y z"]) == f"{text}x y z\n"


@pytest.mark.parametrize(
    "said", [CHANGED, "No ED25519 host key is known for x and you have requested strict checking."]
)
def test_f26_a_changed_key_is_told_with_the_command_that_forgets_the_old_one(said: str) -> None:
    told = explain_ssh(Login(address="10.0.0.144", port=2222), said, "/root/my keys/known_hosts")
    assert told.endswith("ssh-keygen -R '[10.0.0.144]:2222' -f '/root/my keys/known_hosts'")
    assert "no certificate was issued" in told
    assert ("SHA256:uNiVztksCsDhcc0u9e8BrrQtSW2XuvU5ZFcnvL1XfWY" in told) == (said is CHANGED)


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ("root@h: Permission denied (publickey).", "~/.ssh/authorized_keys"),
        ("ssh: connect to host h port 22: Connection refused", "is sshd started?"),
        ("ssh: connect to host h port 22: Connection timed out", "is it on?"),
        ("ssh: connect to host h port 22: No route to host", "is it on?"),
        ("ssh: Could not resolve hostname h: Name or service not known", "give its address"),
        ("kex_exchange_identification: Connection closed by remote host", "does it let this host in"),
        ("Permissions 0644 for 'k' are too open.\nWARNING: UNPROTECTED PRIVATE KEY FILE!", "chmod 600"),
        ("", ""),
    ],
)
def test_what_ssh_says_has_its_way_out(said: str, way: str) -> None:
    told = explain_ssh(LOGIN, f"Warning: Permanently added 'h' (ED25519) to the list of known hosts.\n{said}", "k")
    assert told.startswith("ssh does not reach root at 10.0.0.144")
    assert way in told
    assert "Permanently added" not in told


HASHED = "|1|j7oOkb3X/ardUKz3eV7KeIW/XQo=|r8xIfKsi+TTWXX3xM5G0OgjJt/k= ssh-ed25519 AAAA"
"""By ssh-keygen -H, of [127.0.0.1]:17217."""


@pytest.mark.parametrize(
    ("line", "name", "is_about"),
    [
        (HASHED, "[127.0.0.1]:17217", True),
        (HASHED, "[127.0.0.1]:17218", False),
        ("|1|what|", "h", False),
        ("*.example,10.0.0.? ssh-ed25519 AAAA", "gpu1.example", True),
        ("*.example,10.0.0.? ssh-ed25519 AAAA", "10.0.0.4", True),
        ("*.example,!gpu1.example ssh-ed25519 AAAA", "gpu1.example", False),
        ("!gpu1.example ssh-ed25519 AAAA", "gpu2.example", False),
        ("[10.0.0.4]:2222 ssh-ed25519 AAAA", "[10.0.0.4]:2222", True),
        ("[10.0.0.4]:2222 ssh-ed25519 AAAA", "0", False),
        ("@revoked gpu1.example ssh-ed25519 AAAA", "gpu1.example", True),
        ("\tGPU1.example\tssh-ed25519\tAAAA", "gpu1.example", True),
        ("# gpu1.example ssh-ed25519 AAAA", "gpu1.example", False),
        ("", "gpu1.example", False),
    ],
)
def test_a_known_host_is_found_however_it_is_written(line: str, name: str, is_about: bool) -> None:
    assert lines_of(f"other ssh-ed25519 AAAA\n{line}\n", name) == ((line,) if is_about else ())


def test_a_file_of_hosts_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "known").mkdir()
    session = Session(LOGIN, tmp_path / "known", ("10.0.0.144 ssh-ed25519 AAAA",), str(tmp_path))
    with (
        patch.object(ssh, "read_known", return_value=""),
        pytest.raises(LlmgwError, match="cannot remember the host key"),
    ):
        remember_keys(session)
    assert list(tmp_path.iterdir()) == [tmp_path / "known"]

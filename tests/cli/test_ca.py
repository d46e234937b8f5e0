"""`llmgw ca` as an operator runs it: real processes and files."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.files import read_certificate, read_pair
from llmgw_core.pki.identity import list_names, read_identity

LLMGW = Path(sys.executable).with_name("llmgw")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def ca(home: Path, *arguments: str, code: int = 0) -> str:
    """What the command said, of which a failure's is on standard error, in one line."""
    environ = {**os.environ, "HOME": str(home), "LLMGW_CA_DIR": ""}
    ended = subprocess.run(
        [LLMGW, "ca", *arguments], capture_output=True, text=True, timeout=60, env=environ, cwd=home, check=False
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr if code else ended.stdout + ended.stderr


def test_an_authority_and_a_certificate_for_each_role(home: Path) -> None:
    assert f"made the authority llmgw-authority in {home}/.llmgw/ca" in ca(home, "init")
    for role in ("node", "operator", "gateway"):
        said = ca(home, "issue", role, f"my-{role}", "--out", "out")
        assert said.startswith(f"issued llmgw://{role}/my-{role}, good until 20")
        assert f"  out/my-{role}.crt\n  out/my-{role}.key\n  out/ca.crt\nnext: " in said
        pair = read_pair(home / "out" / f"my-{role}.crt", home / "out" / f"my-{role}.key")
        assert read_identity(pair.certificate) == Identity(Role(role), f"my-{role}")
        assert stat.S_IMODE((home / "out" / f"my-{role}.key").stat().st_mode) == 0o600
    assert read_certificate(home / "out" / "ca.crt") == read_certificate(home / ".llmgw" / "ca" / "ca.crt")


def test_f15_a_servers_addresses_are_addresses(home: Path) -> None:
    ca(home, "init")
    said = ca(home, "issue", "server", "control", "--dns", "llmgw", "--ip", "10.0.0.140", "--ip", "::1")
    assert ", for DNS:llmgw, IP:10.0.0.140, IP:::1, good until" in said
    assert list_names(read_certificate(home / "control.crt")) == ("DNS:llmgw", "IP:10.0.0.140", "IP:::1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["server", "control"], "a server needs at least one --ip or --dns"),
        (
            ["server", "control", "--dns", "10.0.0.140"],
            "'10.0.0.140' is an IP address, not a DNS name: give it as --ip",
        ),
        (["node", "n", "--ip", "10.0.0.1"], "--ip and --dns are for servers"),
        (["node", "gpu1/CN=admin"], "'gpu1/CN=admin' cannot be a name of a node"),
        (["node", "gpu1,O=x"], "'gpu1,O=x' cannot be a name of a node"),
        (["node", "gpu1\nX"], r"'gpu1\nX' cannot be a name of a node"),
        (["node", "../x"], "cannot be a name of a node"),
        (["node", "ca"], "its files would be the authority's own"),
        (["node", "n", "--days", "0"], "cannot issue for 0 days"),
    ],
)
def test_what_cannot_be_issued_is_one_line_and_leaves_nothing(home: Path, arguments: list[str], said: str) -> None:
    ca(home, "init")
    error = ca(home, "issue", *arguments, code=2)
    assert said in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in home.iterdir()] == [".llmgw"]
    assert not (home / ".llmgw" / "ca" / "issued.jsonl").exists()


def test_without_an_authority_the_way_to_one_is_told(home: Path) -> None:
    assert "`llmgw ca init` makes one" in ca(home, "issue", "node", "n", code=2)
    assert "`llmgw ca init` makes one" in ca(home, "list", code=2)


def test_nothing_is_replaced_without_force(home: Path) -> None:
    ca(home, "init")
    ca(home, "issue", "node", "n")
    root, key = (home / ".llmgw" / "ca" / "ca.crt").read_bytes(), (home / "n.key").read_bytes()
    said = ca(home, "init", code=2)
    assert "it exists; --force replaces it" in said
    assert "every certificate that it has issued counts no more" in said
    assert "n.key: it exists" in ca(home, "issue", "node", "n", code=2).replace("n.crt", "n.key")
    assert (home / ".llmgw" / "ca" / "ca.crt").read_bytes() == root
    assert (home / "n.key").read_bytes() == key
    assert len(listed(home)["issued"]) == 1
    ca(home, "issue", "node", "n", "--force")
    assert (home / "n.key").read_bytes() != key
    ca(home, "init", "--force")
    assert listed(home)["issued"] == []
    assert "ca.crt: it exists" in ca(home, "issue", "node", "m", code=2)


def test_a_renewal_has_a_new_key_and_the_same_names(home: Path) -> None:
    ca(home, "init")
    ca(home, "issue", "server", "control", "--ip", "10.0.0.140", "--out", "a")
    ca(home, "renew", "control", "--out", "b")
    old, new = (read_pair(home / each / "control.crt", home / each / "control.key") for each in "ab")
    assert list_names(new.certificate) == list_names(old.certificate) == ("IP:10.0.0.140",)
    assert new.certificate.public_key() != old.certificate.public_key()
    assert "no certificate was issued to nobody" in ca(home, "renew", "nobody", code=2)


def test_a_renewal_of_a_name_with_two_roles_asks_which(home: Path) -> None:
    ca(home, "init")
    ca(home, "issue", "server", "x", "--dns", "x", "--out", "a")
    ca(home, "issue", "node", "x", "--out", "b")
    assert "x has certificates as server and node; say which with --role" in ca(home, "renew", "x", code=2)
    ca(home, "renew", "x", "--role", "node", "--out", "c")
    assert read_identity(read_certificate(home / "c" / "x.crt")) == Identity(Role.NODE, "x")


def listed(home: Path, *arguments: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(ca(home, "list", "--json", *arguments))
    return found


def test_the_list_says_until_when_and_how_long(home: Path) -> None:
    ca(home, "init", "--dir", "else")
    assert "nothing issued yet" in ca(home, "list", "--dir", "else")
    ca(home, "issue", "node", "llmgw-node04", "--days", "10", "--dir", "else")
    table = ca(home, "list", "--dir", "else").splitlines()
    assert table[0].split() == ["SERIAL", "ROLE", "NAME", "UNTIL", "LEFT"]
    assert table[1].split()[1:3] == ["node", "llmgw-node04"]
    assert table[1].endswith("  9 days")
    assert table[2].startswith("the authority itself: until ")
    (one,) = listed(home, "--dir", "else")["issued"]
    assert (one["role"], one["name"], one["days_left"]) == ("node", "llmgw-node04", 9)
    assert one["serial"] == table[1].split()[0]


def test_f20_an_authority_that_ends_soon_says_so_each_time(home: Path) -> None:
    ca(home, "init", "--days", "30")
    said = ca(home, "issue", "node", "n")
    assert "llmgw: warning: the certificate ends on " in said
    assert "llmgw: warning: the authority's own certificate ends in 29 days" in said
    assert "llmgw: warning: the authority's own certificate ends in 29 days" in ca(home, "list")

"""An operator's mistake is one line and exit code 2, never a traceback."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llmgw_core.model.identity import Role
from llmgw_core.pki.authority import Authority
from llmgw_core.testing.light_agent import issue

LLMGW = Path(sys.executable).with_name("llmgw")


def said(*words: str | Path) -> str:
    ended = subprocess.run([LLMGW, *words], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("llmgw: ")
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr


DEEP = f"a = {'[' * 5000}{']' * 5000}"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'server = "\xff"', "it is not UTF-8"),
        (DEEP.encode(), "nested too deeply"),
        (b'server = "https://c"\nidentity = "a\\u0000b"', "can be no file"),
        (b'server = "https://c"\nidentity = ""', "can be no file"),
        (b'server = "https://a..b"\nidentity = "x"', "at most 63"),
    ],
)
def test_a_context_file_that_cannot_be_meant(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "context.toml"
    file.write_bytes(content)
    if b"a..b" in content:
        authority = Authority.create(tmp_path / "ca", datetime.now(UTC))  # noqa: TID251
        issue(authority, tmp_path, Role.OPERATOR, "alice")
        file.write_bytes(content.replace(b'"x"', f'"{tmp_path}/alice"'.encode()))
    assert expected in said("ctl", "--context", file, "nodes")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'node = "\xff"', "it is not UTF-8"),
        (DEEP.encode(), "nested too deeply"),
        (b'node = "gpu1"\nserver = "https://c"\ncertificate = "a\\u0000"\nkey = "b"\nauthority = "c"', "NUL"),
    ],
)
def test_an_agents_file_that_cannot_be_meant(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_bytes(content)
    assert expected in said("agent", "--config", file)


@pytest.mark.parametrize("listen", [":²", ":", "7443x"])
def test_a_port_that_is_none(listen: str) -> None:
    assert "write ADDRESS:PORT" in said("control", "--identity", "x", "--listen", listen)


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", ":65536", ":" + "1" * 5000])
def test_a_port_that_is_too_large(listen: str) -> None:
    assert "the port is too large, the last one is 65535" in said("control", "--identity", "x", "--listen", listen)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-1"], "invalid value for 'REPLICAS': expected 0 to 10000, got -1"),
        (["10001"], "invalid value for 'REPLICAS': expected 0 to 10000, got 10001"),
        (["x"], "invalid value for 'REPLICAS': expected a whole number, got 'x'"),
        (["1", "--jsn"], "unexpected extra argument (--jsn)"),
        (["--jsn"], "no such option '--jsn'"),
        ([], "missing argument 'REPLICAS'"),
    ],
)
def test_a_number_of_replicas_that_is_none(words: list[str], expected: str) -> None:
    assert expected in said("ctl", "scale", "hello", *words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ctl", "drian", "x"], "no command 'drian' (did you mean 'drain'?); see `llmgw ctl --help`"),
        (["gate"], "no command 'gate' (did you mean 'gateway'?); see `llmgw --help`"),
        (["ctl", "xyzzy"], "no command 'xyzzy'; see `llmgw ctl --help`"),
        (["units"], "missing argument '{agent|control|gateway}'. Choose from: agent, control, gateway; see `llmgw"),
    ],
)
def test_a_command_that_is_none(words: list[str], expected: str) -> None:
    assert expected in said(*words)


@pytest.mark.parametrize("seconds", ["1e-9", "0", "-1", "1e99", "nan"])
def test_a_heartbeat_that_is_none(seconds: str, tmp_path: Path) -> None:
    said("control", "--identity", "x", "--state", tmp_path / "state", "--heartbeat", seconds)
    assert not (tmp_path / "state").exists()


class Used:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = Authority.create(directory / "ca", datetime.now(UTC))  # noqa: TID251
        issue(authority, directory, Role.OPERATOR, "alice")
        issue(authority, directory, Role.NODE, "gpu1")

    def words(self, file: Path, server: str = "https://control", who: str = "alice") -> list[str | Path]:
        return ["ctl", "--context", file, "use", "--server", server, "--identity", self.directory / who]


@pytest.fixture
def used(tmp_path: Path) -> Used:
    return Used(tmp_path)


def test_use_says_what_it_cannot_write(used: Used, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in said(*used.words(tmp_path / "file" / "context.toml"))
    assert "cannot write" in said(*used.words(Path("/proc/context.toml")))


def test_use_refuses_who_is_no_operator(used: Used, tmp_path: Path) -> None:
    assert "not of an operator" in said(*used.words(tmp_path / "context.toml", who="gpu1"))
    assert not (tmp_path / "context.toml").exists()


@pytest.mark.parametrize("server", ['https://a"b', "https://c:0", "https://a..b", "https://" + "a" * 64])
def test_use_refuses_an_address_that_cannot_be_reached(used: Used, tmp_path: Path, server: str) -> None:
    said(*used.words(tmp_path / "context.toml", server))
    assert not (tmp_path / "context.toml").exists()


def test_watch_goes_without_json(used: Used, tmp_path: Path) -> None:
    named = ("--server", "https://127.0.0.1:9", "--identity", tmp_path / "alice")
    assert "give one" in said("ctl", *named, "nodes", "--watch", "--json")


def test_what_use_writes_is_read(used: Used, tmp_path: Path) -> None:
    file = tmp_path / "new" / "context.toml"
    subprocess.run([LLMGW, *used.words(file, "https://127.0.0.1:9")], check=True, timeout=60, env=os.environ)
    assert "cannot connect to https://127.0.0.1:9" in said("ctl", "--context", file, "nodes")

"""The authority, the control plane and an agent as real processes, by the commands that the README gives."""

import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from attrs import define, field

from llmgw_core.cli import main
from llmgw_core.cli.asking import ask
from llmgw_core.cli.context import Context
from llmgw_core.testing.fake_infiniband import an_adapter, write_tree

LLMGW = Path(sys.executable).with_name("llmgw")
TIMEOUT_S = 90
POLL_S = 0.02


def until(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives, as soon as that is something."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"waited {TIMEOUT_S} s for {what}")


@define
class Running:
    """A process, and what it says on standard error."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> str:
        found = until(lambda: re.search(pattern, self.log.read_text()) or self.process.poll() is not None, pattern)
        assert found is not True, f"it ended with {self.process.returncode}:\n{self.log.read_text()}"
        return str(found[0])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@define
class Terminals:
    """A directory with an authority, and the processes in it."""

    directory: Path
    port: int = 0
    running: list[Running] = field(factory=list)

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("LLMGW_CONTEXT",)}
        # Nothing of this machine's engines: only the simulated one is looked into.
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        return {**kept, "LLMGW_CA_DIR": "ca", "HOME": str(self.directory), "PATH": path}

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a command prints, and its exit code. `ctl` runs in this process, which is all that it saves."""
        return self.run_here(*words) if words[0] == "ctl" else self.run_apart(*words)

    def run_here(self, *words: str) -> subprocess.CompletedProcess[str]:
        said, complained = io.StringIO(), io.StringIO()
        with (
            chdir(self.directory),
            patch.dict(os.environ, self.environ, clear=True),
            patch.object(sys, "argv", ["llmgw", *words]),
            redirect_stdout(said),
            redirect_stderr(complained),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(words, code, said.getvalue(), complained.getvalue())

    def run_apart(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LLMGW, *words], cwd=self.directory, env=self.environ, capture_output=True, text=True, timeout=TIMEOUT_S
        )

    def done(self, *words: str) -> str:
        ended = self.run(*words)
        assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stderr}"
        return ended.stdout

    def refused(self, *words: str) -> str:
        """The one line of a command that ends with exit code 2."""
        ended = self.run(*words)
        assert ended.returncode == 2, f"{words}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        assert ended.stdout == ""
        (line,) = ended.stderr.splitlines()
        return line

    def start(self, *words: str) -> Running:
        log = self.directory / f"{len(self.running)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen([LLMGW, *words], cwd=self.directory, env=self.environ, stderr=file)
        started = Running(process, log)
        self.running.append(started)
        return started

    def control(self, *more: str) -> Running:
        listen = f"127.0.0.1:{self.port}"
        started = self.start("control", "--identity", "pki/control", "--state", "st", "--listen", listen, *more)
        self.port = int(re.findall(r"\d+", started.said(r"listening address=\S+"))[-1])
        return started

    def agent(self, name: str = "gpu1", identity: str = "", *more: str) -> Running:
        identity, state = identity or f"pki/{name}", f"ag-{name}"
        return self.start(
            "agent", "--node", name, "--server", self.server, "--identity", identity, "--state", state, *more
        )

    def ctl(self, *words: str) -> str:
        return self.done("ctl", *self.flags, *words)

    def asked(self, *words: str) -> Any:
        return json.loads(self.ctl(*words, "--json"))

    def asked_lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self.ctl(*words, "--json").splitlines()]

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--server", self.server, "--identity", "pki/alice")

    def ask(self, what: str, **arguments: Any) -> Any:
        """As an operator's command would, without a process for each look."""
        identity = str(self.directory / "pki" / "alice")
        return ask(Context(self.directory / "none", self.server, identity), what, **arguments)

    def wait_for(self, name: str, state: str) -> Any:
        def look() -> Any:
            return next((node for node in self.ask("nodes") if (node["name"], node["state"]) == (name, state)), None)

        return until(look, f"{name} to be {state}")


@pytest.fixture(name="first_terminal", scope="module")
def _first_terminal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the authority's commands have made, once for all tests."""
    found = Terminals(tmp_path_factory.mktemp("authority"))
    found.done("ca", "init")
    found.done("ca", "issue", "server", "control", "--ip", "127.0.0.1", "--out", "pki")
    found.done("ca", "issue", "node", "gpu1", "--out", "pki")
    found.done("ca", "issue", "node", "gpu2", "--out", "pki")
    found.done("ca", "issue", "operator", "alice", "--out", "pki")
    return found.directory


@pytest.fixture(name="terminals")
def _terminals(tmp_path: Path, first_terminal: Path) -> Iterator[Terminals]:
    shutil.copytree(first_terminal, tmp_path, dirs_exist_ok=True)
    found = Terminals(tmp_path)
    yield found
    for running in found.running:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(TIMEOUT_S)


def test_a_node_is_seen_and_everything_ends_cleanly(terminals: Terminals) -> None:
    control = terminals.control("--ca-dir", "ca", "--heartbeat", "1")
    agent = terminals.agent()
    node = terminals.wait_for("gpu1", "online")
    assert node["days_left"] == 89
    apart = terminals.run_apart("ctl", *terminals.flags, "nodes", "--json")
    assert [each["name"] for each in json.loads(apart.stdout)] == ["gpu1"]
    mistaken = terminals.run_apart("ctl", *terminals.flags, "node", "gpu9")
    assert (mistaken.returncode, mistaken.stdout) == (2, "")
    assert mistaken.stderr.startswith("llmgw: no node 'gpu9' has ever been here")
    until(lambda: terminals.ctl("nodes").splitlines()[1].startswith("gpu1  online  "), "it listed as online")
    assert agent.stop() == 0
    terminals.wait_for("gpu1", "suspect")
    assert control.stop() == 0
    for running in (control, agent):
        assert "Traceback" not in running.log.read_text()
        assert "stopping signal=SIGTERM" in running.log.read_text()


def test_what_an_operator_asks(terminals: Terminals) -> None:
    terminals.control()
    assert terminals.ctl("nodes") == "no node has ever been here; start an agent with `llmgw agent`\n"
    assert terminals.ctl("fabrics") == "no node states a fabric\n"
    assert terminals.ctl("cert", "list") == "nothing is revoked\n"
    write_tree(terminals.directory / "ib", {"mlx5_2": an_adapter(2), "mlx5_3": an_adapter(3)})
    terminals.agent("gpu1", "", "--fabric", "ib-b:mlx5_2,mlx5_3", "--ib-root", "ib", "--nvidia-smi", "/no/such")
    terminals.wait_for("gpu1", "online")
    until(lambda: "node reported" in terminals.ctl("events"), "all that it has looked at")

    shown = terminals.ctl("node", "gpu1")
    assert shown.startswith("gpu1: online, from 127.0.0.1:")
    assert "  fabric      ib-b: mlx5_2:1,mlx5_3:1" in shown
    assert "TROUBLE     GPUs: nvidia-smi not found" in shown
    assert terminals.asked("node", "gpu1")["facts"]["fabrics"][0]["name"] == "ib-b"
    assert "ib-b    gpu1  online" in terminals.ctl("fabrics")

    kinds = [event["kind"] for event in terminals.asked_lines("events")]
    assert kinds[:3] == ["control plane started", "node connected", "node reported"]
    assert "node connected: from 127.0.0.1:" in terminals.ctl("events", "--node", "gpu1", "--last", "50")

    copy = terminals.directory / "copy.db"
    assert terminals.ctl("backup", str(copy)) == f"wrote {copy} on the control plane's machine\n"
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT name FROM node").fetchall() == [("gpu1",)]
    assert "copy.db is there already" in terminals.refused("ctl", *terminals.flags, "backup", str(copy))
    assert "name an absolute path" in terminals.refused("ctl", *terminals.flags, "backup", "copy.db")
    assert "cannot back up to /no/" in terminals.refused("ctl", *terminals.flags, "backup", "/no/such/directory")


def test_revoking_forgiving_removing_and_onboarding_again(terminals: Terminals) -> None:
    control = terminals.control()
    agent = terminals.agent()
    terminals.wait_for("gpu1", "online")
    assert "is connected from 127.0.0.1:" in terminals.refused("ctl", *terminals.flags, "nodes", "remove", "gpu1")
    (serial,) = re.findall(r"^revoked ([0-9a-f]+)$", terminals.ctl("cert", "revoke", "gpu1", "--reason", "stolen"))
    reason = f"node gpu1 refused: its certificate, serial {serial}, is revoked"
    control.said(f'refused node=gpu1 address=127.0.0.1:\\d+ reason="{reason}"')
    agent.said(f'not connected reason="{reason}"')
    assert [(each["name"], each["by"], each["reason"]) for each in terminals.asked("cert", "list")] == [
        ("gpu1", "alice", "stolen")
    ]
    assert "its certificate is revoked" in terminals.ctl("node", "gpu1")
    assert terminals.ctl("cert", "unrevoke", "gpu1") == f"no longer revoked {serial}\n"
    terminals.wait_for("gpu1", "online")

    terminals.ctl("cert", "revoke", "--serial", serial.upper())
    assert agent.stop() == 0
    assert terminals.ctl("nodes", "remove", "gpu1").startswith("removed gpu1; ")
    assert terminals.asked("nodes") == []
    terminals.done("ca", "issue", "node", "gpu1", "--out", "again")
    terminals.agent("gpu1", "again/gpu1")
    terminals.wait_for("gpu1", "online")


def test_mistakes_of_operators_are_one_line_and_exit_code_2(terminals: Terminals) -> None:
    terminals.control()
    ctl = ("ctl", *terminals.flags)
    assert "no node 'gpu9' has ever been here" in terminals.refused(*ctl, "node", "gpu9")
    assert "no node 'gpu9' has ever been here" in terminals.refused(*ctl, "events", "--node", "gpu9")
    assert "no node 'gpu9' has ever been here" in terminals.refused(*ctl, "nodes", "remove", "gpu9")
    assert "no certificate of gpu9 was ever shown here" in terminals.refused(*ctl, "cert", "revoke", "gpu9")
    assert "cannot be a name of a node" in terminals.refused(*ctl, "cert", "revoke", "gpu9/CN=admin")
    assert "nothing is revoked under 'gpu9'" in terminals.refused(*ctl, "cert", "unrevoke", "gpu9")
    assert "no control plane is named, and there is no" in terminals.refused("ctl", "nodes")
    wrong = terminals.refused("ctl", "--server", f"https://localhost:{terminals.port}", *ctl[3:], "nodes")
    assert wrong.endswith("it is valid for IP:127.0.0.1")
    assert "Connection refused" in terminals.refused("ctl", "--server", "https://127.0.0.1:1", *ctl[3:], "nodes")
    assert "write https://HOST:7443" in terminals.refused("ctl", "--server", "control:7443", *ctl[3:], "nodes")
    assert "pki/bob.crt" in terminals.refused(*ctl[:4], "pki/bob", "nodes")
    node = terminals.refused(*ctl[:4], "pki/gpu1", "nodes")
    assert node == "llmgw: pki/gpu1.crt is the certificate of node gpu1, not of an operator"
    server = terminals.refused(*ctl[:4], "pki/control", "nodes")
    assert server == "llmgw: pki/control.crt is the certificate of server control, not of an operator"


def test_a_context_file_takes_the_place_of_the_flags(terminals: Terminals) -> None:
    terminals.control()
    terminals.done("ctl", "use", "--server", terminals.server, "--identity", "pki/alice")
    assert terminals.done("ctl", "nodes", "--json") == "[]\n"
    (terminals.directory / ".llmgw" / "context.toml").write_text("serve = 1\nidentity = 2\n")
    ended = terminals.run("ctl", "nodes")
    assert ended.returncode == 2
    assert "identity: expected a text, got 2" in ended.stderr
    assert "unknown key serve" in ended.stderr
    assert "server: is missing" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_control_plane_or_agent_on_the_same_directory_is_refused(terminals: Terminals) -> None:
    control = terminals.control()
    terminals.agent()
    terminals.wait_for("gpu1", "online")
    second = terminals.refused("control", "--identity", "pki/control", "--state", "st", "--listen", "127.0.0.1:0")
    assert second == f"llmgw: st is in use by another control plane (pid {control.process.pid}); stop it first"
    agent = terminals.refused(
        "agent", "--node", "gpu1", "--server", terminals.server, "--identity", "pki/gpu1", "--state", "ag-gpu1"
    )
    assert re.fullmatch(r"llmgw: ag-gpu1 is in use by another agent \(pid \d+\); stop it first", agent)
    other = terminals.refused(
        "control", "--identity", "pki/control", "--state", "st2", "--listen", f"127.0.0.1:{terminals.port}"
    )
    assert other == f"llmgw: cannot listen on 127.0.0.1:{terminals.port}: Address already in use"


def test_what_control_and_agent_cannot_start_with_is_one_line(terminals: Terminals) -> None:
    (terminals.directory / "file").write_text("")
    control = ("control", "--state", "st", "--listen", "127.0.0.1:0", "--identity")
    agent = ("agent", "--node", "gpu1", "--server", "https://127.0.0.1:1", "--identity", "pki/gpu1", "--state")
    assert "cannot read the certificate" in terminals.refused(*control, "pki/nobody")
    assert "cannot use the state directory file/st: Not a directory" in terminals.refused(
        *control, "pki/control", "--state", "file/st"
    )
    assert "cannot use the state directory file/ag: Not a directory" in terminals.refused(*agent, "file/ag")
    assert "write ADDRESS:PORT" in terminals.run(*control, "pki/control", "--listen", "7443x").stderr
    assert "certificate of node gpu1, not of a server" in terminals.refused(*control, "pki/gpu1")
    assert "certificate of node gpu1, not of node gpu2" in terminals.refused(*agent, "ag", "--node", "gpu2")
    operator = terminals.refused(*agent, "ag", "--identity", "pki/alice")
    assert "certificate of operator alice, not of node gpu1" in operator
    twice = terminals.refused(*agent, "ag", "--fabric", "a:mlx5_2", "--fabric", "b:mlx5_2")
    assert "mlx5_2" in twice
    bare = terminals.run("agent")
    assert bare.returncode == 2
    assert "give --node, --server, --identity, or --config: /etc/llmgw/agent.toml is not there" in bare.stderr


def test_ctrl_c_ends_both_cleanly(terminals: Terminals) -> None:
    control = terminals.control()
    agent = terminals.agent()
    terminals.wait_for("gpu1", "online")
    assert control.stop(signal.SIGINT) == 0
    agent.said('not connected reason="the control plane is stopping"')
    assert agent.stop(signal.SIGINT) == 0


# engine-check on the nodes


def test_a_node_checks_its_engine_and_the_fleet_shows_drift(terminals: Terminals) -> None:
    terminals.control()
    old = terminals.directory / "old-sim"
    old.write_text(f'#!/bin/sh\n{sys.executable} -m llmgw_engine_sim "$@" | sed s/0.1.0/0.0.9/\n')
    old.chmod(0o755)
    terminals.agent("gpu1")
    terminals.agent("gpu2", "", "--engine", f"llmgw-sim={old}")
    for name in ("gpu1", "gpu2"):
        terminals.wait_for(name, "online")
    until(lambda: all(node["facts"] for node in terminals.ask("nodes")), "both have reported: they may be asked")

    one = terminals.ctl("engine-check", "sim", "--node", "gpu1")
    assert one.startswith("gpu1: sim: accepts all ")
    plain = terminals.asked("engine-check", "sim", "--node", "gpu2")
    assert (plain["node"], plain["outcome"]) == ("gpu2", "accepted")

    both = terminals.ctl("engine-check", "sim", "--all-nodes")
    assert "gpu1: sim: accepts all " in both
    assert "gpu2: sim: accepts all " in both
    assert "the nodes differ in sim:\nVERSION  HELP " in both
    assert re.search(r"^0\.0\.9 .* 1      gpu2$", both, re.MULTILINE)
    assert [each["node"] for each in terminals.asked("engine-check", "sim", "--all-nodes")] == ["gpu1", "gpu2"]

    missing = terminals.run("ctl", *terminals.flags, "engine-check", "vllm", "--node", "gpu1")
    assert missing.returncode == 2
    assert missing.stdout.startswith("gpu1: vllm: could not be checked: ")
    ctl = ("ctl", *terminals.flags, "engine-check")
    assert "no engine plugin 'nollm'" in terminals.refused(*ctl, "nollm", "--node", "gpu1")
    assert "no node 'gpu9'" in terminals.refused(*ctl, "sim", "--node", "gpu9")
    unasked = terminals.run(*ctl, "nollm", "--all-nodes")
    assert unasked.returncode == 2
    assert unasked.stdout.count("could not be checked: ") == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--node", "gpu1", "--all-nodes"), "--node and --all-nodes say two different things"),
        (("--node", "gpu1", "--executable", "x"), "--node goes without --executable"),
        (("--all-nodes", "--engine-version", "1"), "--all-nodes goes without --engine-version"),
        (("--all-nodes", "--timeout", "5"), "--all-nodes goes without --timeout"),
        (("--all-nodes", "--", "--x"), "--all-nodes goes without arguments to judge"),
    ],
)
def test_what_cannot_be_asked_of_an_agent_is_refused(terminals: Terminals, more: tuple[str, ...], said: str) -> None:
    ended = terminals.run("ctl", *terminals.flags, "engine-check", "sim", *more)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_no_node_is_online(terminals: Terminals) -> None:
    terminals.control()
    assert "no node is online" in terminals.refused("ctl", *terminals.flags, "engine-check", "sim", "--all-nodes")

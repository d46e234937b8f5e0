"""`llmgw-onboard-node` against a real sshd: from nothing to the node in `ctl nodes`, and all that can go wrong."""

import io
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from attrs import define, field

from llmgw_core.cli import onboard_node
from llmgw_core.cli.asking import ask
from llmgw_core.cli.context import Context
from llmgw_core.cli.onboard_node import main
from llmgw_core.onboard import awaiting
from llmgw_core.pki.authority import Authority
from llmgw_core.testing.fake_infiniband import an_adapter, write_tree
from llmgw_core.testing.machine import fill
from llmgw_core.testing.ports import free_port
from llmgw_core.testing.sim_model import sim_model
from llmgw_core.testing.ssh_machine import SshMachine, a_release, ssh_machine

BIN = Path(sys.executable).parent
NODE = "llmgw-node04"
DEADLINE_S = 60.0
GREETING = "umask 077; export PATH=/usr/bin:/bin; echo '*** error: unauthorized access ***'; printf 'last login '\n"
ODD = """/srv/ib "tree" it's 100% $HOME"""
FILES = ("ca.crt", "agent.toml", f"{NODE}.crt", f"{NODE}.key")


@define
class Ended:
    stdout: str
    stderr: str


@define
class Site:
    """An authority's host, with a control plane on it."""

    directory: Path
    port: int = 0
    processes: list[subprocess.Popen[bytes]] = field(factory=list)

    @property
    def ca(self) -> Path:
        return self.directory / "ca"

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def release(self) -> Path:
        return self.directory / "llmgw-release"

    @property
    def ssh_log(self) -> Path:
        """The words of every ssh that was run."""
        return self.directory / "ssh.log"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")}
        return {**kept, "PATH": f"{self.directory}/bin:{os.environ['PATH']}", "HOME": str(self.directory)}

    def llmgw(self, *words: str) -> None:
        subprocess.run([BIN / "llmgw", *words], check=True, capture_output=True, env=self.environment)

    def build(self) -> None:
        (self.directory / "bin").mkdir()
        recorder = self.directory / "bin" / "ssh"
        log = shlex.quote(str(self.ssh_log))
        recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{log}\nexec /usr/bin/ssh "$@"\n')
        recorder.chmod(0o755)
        a_release(self.release)
        directory = ("--dir", str(self.ca))
        pki = ("--out", str(self.directory / "pki"), *directory)
        self.llmgw("ca", "init", *directory)
        self.llmgw("ca", "issue", "server", "control", "--ip", "127.0.0.1", *pki)
        self.llmgw("ca", "issue", "operator", "ada", *pki)
        self.port = self.start_control("pki/control", "state")

    def start_control(self, identity: str, state: str) -> int:
        port = free_port()
        words = ["control", "--identity", identity, "--state", state, "--listen", f"127.0.0.1:{port}"]
        log = self.directory / f"{state}.log"
        with log.open("wb") as file:
            self.processes.append(subprocess.Popen([BIN / "llmgw", *words], stderr=file, cwd=self.directory))
        until(lambda: " listening " in log.read_text())
        return port

    def words(self, machine: SshMachine, *more: str, node: str = NODE) -> list[str]:
        told = ["--node", node, "--server", self.server, "--ca-dir", str(self.ca), "--wait", "120", *machine.login]
        release = [] if "--command" in more or "--binary" in more else ["--binary", str(self.release)]
        sim = ["--engine", f"llmgw-sim={BIN / 'llmgw-sim'}"]
        return [*told, *release, *sim, *more]

    def onboard(self, machine: SshMachine, *more: str, node: str = NODE, wanted: int = 0) -> Ended:
        said, complained = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, self.environment, clear=True),
            patch.object(awaiting, "EVERY_S", 0.05),
            patch.object(onboard_node, "LOOK_EVERY_S", 0.05),
            patch.object(sys, "argv", ["llmgw-onboard-node", *self.words(machine, *more, node=node)]),
            redirect_stdout(said),
            redirect_stderr(complained),
        ):
            code = _exit_code()
        assert code == wanted, said.getvalue() + complained.getvalue()
        return Ended(said.getvalue(), complained.getvalue())

    def refused(self, machine: SshMachine, *more: str, node: str = NODE) -> list[str]:
        """The problems; nothing was issued and nothing changed."""
        issued, calls = self.issued, machine.calls
        ended = self.onboard(machine, *more, node=node, wanted=2)
        assert ended.stdout == ""
        assert self.issued == issued
        assert machine.calls == calls
        assert not machine.path("/etc/llmgw").exists()
        lines = [line.removeprefix("llmgw: ") for line in ended.stderr.splitlines()]
        return [line for line in lines if not line.startswith(("note: ", "first contact", "it is remembered"))]

    @property
    def issued(self) -> list[str]:
        return (self.ca / "issued.jsonl").read_text().splitlines()

    @property
    def operator(self) -> tuple[str, str]:
        return ("--identity", str(self.directory / "pki" / "ada"))

    def ask(self, what: str, **arguments: Any) -> Any:
        return ask(Context(self.directory / "none", self.server, self.operator[1]), what, **arguments)

    def states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.ask("nodes")}


def _exit_code() -> object:
    try:
        main()
    except SystemExit as ended:
        return ended.code
    return 0


def until(condition: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("waited too long")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.build()
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SshMachine]:
    with ssh_machine(tmp_path / "machine") as made:
        yield made


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    """Of tests that refuse, and so change nothing; what they change on it themselves they take back."""
    with ssh_machine(tmp_path_factory.mktemp("bare") / "machine") as made:
        yield made


@contextmanager
def changed(machine: SshMachine, path: str, text: str, mode: int = 0o755) -> Iterator[None]:
    target = machine.path(path)
    before = target.read_bytes() if target.exists() else None
    old_mode = target.stat().st_mode if before is not None else 0
    target.unlink(missing_ok=True)
    machine.write(path, text, mode)
    yield
    target.unlink()
    if before is not None:
        target.write_bytes(before)
        target.chmod(old_mode & 0o7777)


def key_lines(machine: SshMachine) -> list[str]:
    return [line for line in machine.read(f"/etc/llmgw/{NODE}.key").splitlines() if "-----" not in line]


@contextmanager
def watched_command_lines() -> Iterator[set[str]]:
    """All command lines that this machine's process list shows meanwhile, sampled."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(path.read_text(errors="replace"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_from_nothing_to_the_node_in_ctl_nodes_and_twice_in_a_row(site: Site, machine: SshMachine) -> None:
    write_tree(machine.path(ODD), {"mlx5_2": an_adapter(2), "mlx5_3": an_adapter(3)})
    machine.path("/etc/ssl/certs/ca-certificates.crt").unlink()
    machine.write("/root/.bashrc", GREETING)
    options = ("--fabric", "ib-b:mlx5_2,mlx5_3", "--ib-root", ODD, "--nvidia-smi", "/opt/my smi/nvidia-smi")
    with watched_command_lines() as seen:
        ended = site.onboard(machine, *options)
    assert f"{NODE} is connected to {site.server}\n" in ended.stdout
    assert "--fabric is stated" not in ended.stderr
    assert site.states()[NODE] == "online"
    # It is let in before it has said anything, and says something before it has looked.
    (fabric,) = until(lambda: (site.ask("node", node=NODE)["facts"] or {}).get("fabrics"))
    assert fabric["name"] == "ib-b"

    modes = {name: machine.path(f"/etc/llmgw/{name}").stat().st_mode & 0o777 for name in FILES}
    assert modes == {"ca.crt": 0o644, "agent.toml": 0o644, f"{NODE}.crt": 0o644, f"{NODE}.key": 0o600}
    assert sorted(path.name for path in machine.path("/etc/llmgw").iterdir()) == sorted(FILES)
    assert tomllib.loads(machine.read("/etc/llmgw/agent.toml"))["ib_root"] == ODD
    assert machine.read("/usr/local/share/ca-certificates/llmgw-authority.crt") == (site.ca / "ca.crt").read_text()
    assert machine.path("/usr/local/bin/llmgw").stat().st_mode & 0o777 == 0o755
    unit = "llmgw-agent.service"
    begun = ["update-ca-certificates", "systemctl daemon-reload"]
    assert machine.calls == [*begun, f"systemctl enable --no-reload {unit}", f"systemctl restart {unit}"]

    key = key_lines(machine)
    for told in (site.ssh_log.read_text(), ended.stdout, ended.stderr, *seen, *machine.calls):
        assert not [line for line in key if line in told]
    assert not list(site.directory.rglob("*.key.new"))

    _twice(site, machine, options)


def _twice(site: Site, machine: SshMachine, options: tuple[str, ...]) -> None:
    """The second time changes nothing, and says more with an operator's certificate."""
    paths = [machine.path(f"/etc/llmgw/{name}") for name in FILES]
    before = ([path.stat().st_mtime_ns for path in paths], machine.calls, site.issued)
    ended = site.onboard(machine, *options, *site.operator)
    assert "all is there already, and the agent runs: nothing is changed" in ended.stderr
    assert "its certificate stays: good for 89 days" in ended.stderr
    assert ([path.stat().st_mtime_ns for path in paths], machine.calls, site.issued) == before
    assert f"{NODE}: online; no GPUs" in ended.stdout
    assert "ib-b; sim 0.1.0 (accepted)" in ended.stdout
    assert "to be mended: GPUs: nvidia-smi not found" in ended.stdout
    assert "no catalog was applied yet" in ended.stdout


def test_a_machine_that_was_installed_anew_gets_a_new_certificate_of_the_same_name(
    site: Site, machine: SshMachine
) -> None:
    site.onboard(machine, node="wiped")
    first = machine.read("/etc/llmgw/wiped.crt")
    machine.stop()
    until(lambda: site.states()["wiped"] != "online")
    machine.start()
    machine.prepare()
    assert not machine.path("/etc/llmgw").exists()
    ended = site.onboard(machine, node="wiped")
    assert site.states()["wiped"] == "online"
    assert machine.read("/etc/llmgw/wiped.crt") != first
    assert "issued a new certificate, since it has none" in ended.stderr
    assert "note: an older certificate of wiped is good until" in ended.stderr


def test_f26_a_changed_host_key_is_refused_with_the_way_out_and_nothing_is_issued(
    site: Site, machine: SshMachine
) -> None:
    site.onboard(machine, "--dry-run")
    assert machine.login[3] not in known(site)
    site.onboard(machine, "--wait", "0", node="keyed")
    assert machine.login[3] in known(site)
    machine.change_host_key()
    (problem,) = site.refused(machine, node="keyed")
    assert "the host key of [127.0.0.1]:" in problem
    assert "(it shows SHA256:" in problem
    (command,) = re.findall(r"ssh-keygen -R .*", problem)
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    ended = site.onboard(machine, "--wait", "0", node="keyed")
    assert "first contact with [127.0.0.1]:" in ended.stderr


def known(site: Site) -> str:
    path = site.ca / "known_hosts"
    return path.read_text() if path.exists() else ""


def test_a_host_key_that_the_operator_names_is_the_only_one_taken(site: Site, bare: SshMachine) -> None:
    other = (bare.keys / "login.pub").read_text()
    file = str(bare.directory / "named")
    (problem,) = site.refused(bare, "--host-key", other, "--known-hosts", file)
    assert "--host-key names another" in problem
    assert not Path(file).exists()
    ended = site.onboard(bare, "--host-key", (bare.keys / "host.pub").read_text(), "--known-hosts", file, "--dry-run")
    assert "as --host-key names it" in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ssh-port", "1"), "nothing listens there: is sshd started?"),
        (("--ssh-user", "stranger"), "it takes no key of ours for that user"),
        (("--ssh-identity", "/no/such/key"), "--ssh-identity /no/such/key: there is no such file"),
        (("--ssh-user", "daemon"), "does not answer as a machine with a shell: it says"),
        (("--addr", "-oProxyCommand=true"), "expected an address or a host's name"),
        (("--ssh-user", "-x"), "expected a login's name"),
        (("--addr", "no.such.host.invalid"), "no such name is known here"),
    ],
)
def test_what_ssh_cannot_reach_is_one_line_with_the_way_out(
    site: Site, bare: SshMachine, options: tuple[str, ...], said: str
) -> None:
    problems = site.refused(bare, *options)
    assert [problem for problem in problems if said in problem], problems


@pytest.mark.parametrize("node", ["gpu1/CN=admin", "gpu1,O=x", "gpu1\nX", "-x", "GPU1", "a" * 64, "", "ca"])
def test_f18_a_name_that_is_no_label_is_refused_before_anything_is_done_with_it(
    site: Site, bare: SshMachine, node: str
) -> None:
    before = site.ssh_log.read_text() if site.ssh_log.exists() else ""
    (problem,) = site.refused(bare, node=node)
    assert re.search("cannot be a name of a node|its files would be the authority's own", problem)
    assert (site.ssh_log.read_text() if site.ssh_log.exists() else "") == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no file of a release"),
        (b"# llmgw\n\nllmgw runs vLLM\n", "is no file of a release"),
        (b"\x7fELF\2\1\1" + bytes(100), "is no file of a release"),
        (b"#!/bin/sh\n# llmgw-0.1.0 for linux-amd64 (v0.1.0, 0123abcd).\nexec true\n", "is cut short"),
    ],
    ids=["empty", "a page", "a program", "cut"],
)
def test_what_is_no_release_is_refused_before_anything_is_done(
    site: Site, bare: SshMachine, content: bytes, said: str
) -> None:
    file = site.directory / "no-release"
    file.write_bytes(content)
    (problem,) = site.refused(bare, "--binary", str(file))
    assert said in problem


def test_all_that_is_wrong_with_a_machine_is_told_at_once(site: Site, bare: SshMachine) -> None:
    arm = str(a_release(site.directory / "arm", "linux-arm64"))
    bare.path("/run/systemd/system").rename(bare.path("/run/systemd/away"))
    python = "#!/bin/sh\necho 3.9\n"
    pythons = ("/usr/bin/python3", "/usr/bin/python3.11")
    with changed(bare, pythons[0], python), changed(bare, pythons[1], python):
        more = ("--days", "0", "--engine", "vllm", "--fabric", "ib-b:", "--server", "http://localhost:1")
        bare.run("sh", "-c", "mount --bind /etc /etc && mount -o remount,ro,bind /etc")
        try:
            problems = site.refused(bare, "--binary", arm, *more)
        finally:
            bare.run("umount", "/etc")
    bare.path("/run/systemd/away").rename(bare.path("/run/systemd/system"))
    said_of_options = ("--days 0", "--engine 'vllm'", "--fabric 'ib-b:'", "server 'http://localhost:1'")
    assert len(problems) == 8, problems
    for said in (
        "/etc cannot be written to there",
        "is for linux-arm64, and",
        "has python3 3.9 only",
        "runs no systemd",
        *said_of_options,
    ):
        assert [problem for problem in problems if said in problem], said


def test_no_python3_is_told_with_the_way_out(site: Site, bare: SshMachine) -> None:
    none = "#!/bin/sh\nexit 127\n"
    with changed(bare, "/usr/bin/python3", none), changed(bare, "/usr/bin/python3.11", none):
        (problem,) = site.refused(bare)
    assert "has no python3, and a release needs Python 3.11 to 3.14" in problem
    assert "apt-get install python3" in problem


def test_f15_a_server_whose_certificate_has_another_name_is_refused(site: Site, bare: SshMachine) -> None:
    (problem,) = site.refused(bare, "--server", f"https://localhost:{site.port}")
    assert "is valid for IP:127.0.0.1, and the node would look for DNS:localhost" in problem
    assert "--dns localhost" in problem


def test_f20_an_authority_that_has_ended_or_is_not_there_is_told(site: Site, bare: SshMachine, tmp_path: Path) -> None:
    Authority.create(tmp_path / "old", datetime(2020, 1, 1, tzinfo=UTC), days=30)
    (problem, _) = sorted(site.refused(bare, "--ca-dir", str(tmp_path / "old")), key=lambda each: "expired" not in each)
    assert "the authority's own certificate expired on 2020-01-31" in problem
    (problem,) = site.refused(bare, "--ca-dir", str(tmp_path / "none"))
    assert "there is no authority in" in problem
    assert "--ca-dir names another" in problem
    assert not (tmp_path / "none").exists()


def test_a_control_plane_of_another_authority_is_told_here_or_by_the_agents_log(
    site: Site, machine: SshMachine
) -> None:
    other = site.directory / "other"
    site.llmgw("ca", "init", "--dir", str(other))
    made = ("--out", str(site.directory / "otherpki"), "--dir", str(other))
    site.llmgw("ca", "issue", "server", "control", "--ip", "127.0.0.1", "--dns", "control.invalid", *made)
    port = site.start_control("otherpki/control", "otherstate")
    (problem,) = site.refused(machine, "--server", f"https://127.0.0.1:{port}")
    assert "shows a certificate of another authority than this one" in problem

    # A name that only the machine knows: from here nobody could tell.
    machine.write("/etc/hosts", "127.0.0.1 localhost control.invalid\n")
    ended = site.onboard(machine, "--server", f"https://control.invalid:{port}", "--wait", "600", wanted=1)
    assert "is not known, since it does not answer here" in ended.stderr
    assert "was issued by another authority than ours: compare both sides' ca.crt" in ended.stderr
    assert f"has not let {NODE} in, and waiting does not help: " in ended.stderr


def test_a_disk_without_room_is_told_before_and_one_that_fills_up_leaves_nothing_half_done(
    site: Site, machine: SshMachine
) -> None:
    machine.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/usr/local/bin")
    (problem,) = site.refused(machine)
    assert "/usr/local/bin has 0.1 MiB free, and needs 1.0" in problem
    machine.run("umount", "/usr/local/bin")
    machine.run("mkdir", "/etc/llmgw")
    machine.run("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", "/etc/llmgw")
    fill(machine.path("/etc/llmgw/full"))
    issued = site.issued
    ended = site.onboard(machine, node="full", wanted=1)
    assert "No space left on device" in ended.stderr
    assert "run this again: it goes on from what it finds" in ended.stderr
    assert site.issued == issued
    assert [path.name for path in machine.path("/etc/llmgw").iterdir()] == ["full"]
    machine.run("umount", "/etc/llmgw")
    site.onboard(machine, node="full")
    assert site.states()["full"] == "online"


def test_sigint_in_the_middle_says_what_is_loose_and_the_next_run_goes_on(site: Site, machine: SshMachine) -> None:
    slow = '#!/bin/sh\ncase $1 in *.key.new.onboard*) touch /tmp/here; exec sleep 60;; esac\nexec /usr/bin/sync "$@"\n'
    machine.write("/usr/local/sbin/sync", slow, 0o755)
    process = subprocess.Popen(
        [BIN / "llmgw-onboard-node", *site.words(machine, *site.operator, node="halfway")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=site.environment,
    )
    until(lambda: machine.path("/tmp/here").exists())
    for more in ({"node": "halfway"}, {"node": "another"}):
        beside = site.onboard(machine, wanted=2, **more)
        assert re.search(r"another run of llmgw-onboard-node is at (node halfway|\[127)", beside.stderr)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    (serial,) = re.findall(
        r"serial ([0-9a-f]+) was issued, and is not in its place on 127.0.0.1: it is revoked", stderr
    )
    assert serial in site.issued[-1]
    assert serial in [each["serial"] for each in site.ask("revocations")]
    assert "run this again: it goes on from what it finds" in stderr
    assert not machine.path("/etc/llmgw/halfway.key").exists()

    machine.path("/usr/local/sbin/sync").unlink()
    assert "an older certificate" not in site.onboard(machine, *site.operator, node="halfway").stderr
    assert site.states()["halfway"] == "online"
    left = sorted(path.name for path in machine.path("/etc/llmgw").iterdir())
    assert left == ["agent.toml", "ca.crt", "halfway.crt", "halfway.key"]
    assert len([call for call in machine.calls if "restart" in call]) == 1


def test_an_upgrade_replaces_the_release_whole_and_reloads_no_units(site: Site, machine: SshMachine) -> None:
    """F25, F33; and what an operator wrote into agent.toml stays."""
    site.onboard(machine, "--wait", "0", node="upgraded")
    calls, settings = machine.calls, machine.read("/etc/llmgw/agent.toml")
    machine.write("/etc/llmgw/agent.toml", settings.replace("\n[engines]", 'serve_ports = "20000-20099"\n\n[engines]'))
    newer = site.directory / "newer"
    newer.write_text(site.release.read_text() + "# newer\n")
    newer.chmod(0o755)
    dry = site.onboard(machine, "--binary", str(newer), "--dry-run", node="upgraded")
    assert f"# write /usr/local/bin/llmgw (mode 0755), from {newer}" in dry.stdout
    assert machine.calls == calls
    site.onboard(machine, "--binary", str(newer), "--wait", "0", node="upgraded")
    assert machine.calls[len(calls) :] == ["systemctl restart llmgw-agent.service"]
    assert machine.read("/usr/local/bin/llmgw").endswith("# newer\n")
    assert tomllib.loads(machine.read("/etc/llmgw/agent.toml"))["serve_ports"] == "20000-20099"

    broken = a_release(site.directory / "broken", script="echo no such interpreter >&2\nexit 1\n")
    ended = site.onboard(machine, "--binary", str(broken), "--wait", "0", node="upgraded", wanted=1)
    assert "no such interpreter" in ended.stderr
    assert machine.read("/usr/local/bin/llmgw").endswith("# newer\n")
    (problem,) = site.onboard(machine, node="another", wanted=2).stderr.splitlines()[-1:]
    assert "127.0.0.1 is node upgraded already (/etc/llmgw/agent.toml, /etc/llmgw/upgraded.crt)" in problem
    assert problem.endswith(": rm -f /etc/llmgw/agent.toml /etc/llmgw/upgraded.crt /etc/llmgw/upgraded.key")


def test_a_dry_run_prints_every_file_but_keys_and_changes_nothing(site: Site, bare: SshMachine) -> None:
    issued, before = site.issued, known(site)
    ended = site.onboard(bare, "--dry-run", node="dry")
    assert (site.issued, known(site)) == (issued, before)
    assert not bare.path("/etc/llmgw").exists()
    assert bare.calls == []
    for said in (
        "# write /etc/llmgw/agent.toml (mode 0644)\n# Written by llmgw-onboard-node",
        "# issue a certificate to dry, since it has none\n",
        "# write /etc/llmgw/dry.key.new (mode 0600)\n(a private key, made when it is issued; never shown)\n",
        "KillMode=process",
        "systemctl restart llmgw-agent.service",
    ):
        assert said in ended.stdout
    assert "PRIVATE KEY" not in ended.stdout


def test_the_red_hat_family_trusts_the_root_in_its_own_way(site: Site, machine: SshMachine) -> None:
    machine.path("/etc/os-release").unlink()
    machine.write("/etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 9.4"\n')
    site.onboard(machine, "--wait", "0", node="rocky")
    anchor = machine.read("/etc/pki/ca-trust/source/anchors/llmgw-authority.crt")
    assert anchor == (site.ca / "ca.crt").read_text()
    assert machine.calls[0] == "update-ca-trust extract"
    calls = machine.calls
    site.onboard(machine, "--wait", "0", node="rocky")
    assert machine.calls == calls


def test_the_root_is_trusted_by_debians_own_program(site: Site, machine: SshMachine) -> None:
    machine.path("/usr/local/sbin/update-ca-certificates").unlink()
    site.onboard(machine, "--wait", "0", node="trusting")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(machine.path("/etc/ssl/certs/ca-certificates.crt"))
    ours = ssl.PEM_cert_to_DER_cert((site.ca / "ca.crt").read_text())
    assert ours in context.get_ca_certs(binary_form=True)
    issued = site.issued
    assert "nothing is changed" in site.onboard(machine, "--wait", "0", node="trusting").stderr
    assert site.issued == issued


@pytest.mark.skipif(not shutil.which("sudo"), reason="needs sudo, to log in as somebody who may use it")
def test_a_user_with_sudo_is_as_good_as_root_and_one_without_is_told_so(site: Site, machine: SshMachine) -> None:
    with machine.path("/etc/passwd").open("a") as file:
        file.write("ops:x:5001:5001::/tmp:/bin/sh\n")
    with machine.path("/etc/shadow").open("a") as file:
        file.write("ops:*:20000:0:99999:7:::\n")
    machine.write("/etc/sudoers.d/ops", "ops ALL=(ALL) NOPASSWD: /bin/true, /usr/bin/true\n", 0o440)
    (problem,) = site.refused(machine, "--ssh-user", "ops")
    assert "ops at 127.0.0.1 is not root, and sudo wants a password or is not there (" in problem
    machine.write("/etc/sudoers.d/ops", "ops ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    site.onboard(machine, "--ssh-user", "ops", node="by-sudo")
    assert site.states()["by-sudo"] == "online"
    key = machine.path("/etc/llmgw/by-sudo.key").stat()
    assert (key.st_uid, key.st_mode & 0o777) == (0, 0o600)
    calls = machine.calls
    assert "nothing is changed" in site.onboard(machine, "--ssh-user", "ops", node="by-sudo").stderr
    assert machine.calls == calls


def test_f13_a_clock_that_is_behind_is_told_with_the_way_out(site: Site, bare: SshMachine) -> None:
    behind = '#!/bin/sh\n[ "$1" = +%s ] && exec /bin/date -d "-1035 seconds" +%s\nexec /bin/date "$@"\n'
    bare.write("/usr/local/sbin/date", behind, 0o755)
    ended = site.onboard(bare, "--dry-run", node="slow")
    bare.path("/usr/local/sbin/date").unlink()
    assert "note: the clock of 127.0.0.1 is 17 minutes behind, so a new certificate is not yet valid" in ended.stderr


def test_an_llmgw_that_pip_installed_is_used_by_its_path(site: Site, bare: SshMachine) -> None:
    (problem,) = site.refused(bare, "--command", "/opt/llmgw/bin/llmgw")
    assert "there is no llmgw on 127.0.0.1" in problem
    ended = site.onboard(bare, "--command", str(BIN / "llmgw"), "--dry-run", node="pip")
    assert f"ExecStart={BIN}/llmgw agent\n" in ended.stdout
    assert "/usr/local/bin/llmgw" not in re.sub("# .*", "", ended.stdout)


def test_without_a_release_it_says_where_one_could_come_from(site: Site, bare: SshMachine) -> None:
    with patch.object(Site, "release", Path("/no/such/release")):
        (problem,) = site.refused(bare)
    assert problem == "--binary /no/such/release cannot be read: No such file or directory"
    words = [word for word in site.words(bare) if word not in ("--binary", str(site.release))]
    ended = subprocess.run(
        [BIN / "llmgw-onboard-node", *words], env=site.environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "there is no release to install: this llmgw runs from no self-contained file" in ended.stderr


CATALOG = sim_model("here", replicas=0) + sim_model("there", source="/models/there", replicas=0, engine="vllm")


def test_what_onboarding_does_not_do_and_a_cloned_machine_id_are_told(
    site: Site, machine: SshMachine, tmp_path: Path
) -> None:
    """F31, F46; and a certificate that was revoked meanwhile is replaced."""
    site.ask("apply", text=CATALOG, name="catalog.toml")
    with ssh_machine(tmp_path / "clone") as clone:
        clone.write("/etc/machine-id", machine.read("/etc/machine-id"))
        site.onboard(machine, node="first")
        (taken,) = site.refused(clone, *site.operator, node="first")
        assert re.search(r"first is online from 127\.0\.0\.1:\d+, and no agent runs at 127\.0\.0\.1", taken)
        ended = site.onboard(clone, *site.operator, node="second")
        assert "to be mended: the same machine id as first" in ended.stdout
        assert "onboarding installs no engines and copies no weights; missing here:\n" in ended.stdout
        assert "profile there of there: second has no vllm" in ended.stdout
        assert "weights of there: not" in ended.stdout
        assert "profile here of here: second cannot tell its GPUs" in ended.stdout
        site.ask("revoke", name="second")
        refused = site.onboard(clone, "--wait", "600", node="second", wanted=1)
        assert "is revoked\n" in refused.stderr
        assert "run this again with --new-certificate" in refused.stderr
        again = site.onboard(clone, *site.operator, node="second")
        assert re.search(r"issued a new certificate, since its own, serial \w+, is revoked", again.stderr)
        assert site.states()["second"] == "online"

"""A machine to onboard, on this one: a real sshd whose root is a copy of this root that forgets all changes.

For tests. It has mounts and processes of its own (an overlay in memory over /), this machine's network, and a stand-in
for systemd. Needs root, OpenSSH's server, and overlays; skips visibly without.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define

from llmgw_core.testing import fake_systemd
from llmgw_core.testing.ports import free_port

SSHD = "/usr/sbin/sshd"
DEADLINE_S = 60.0
STAND_INS = ("systemctl", "journalctl", "update-ca-certificates", "update-ca-trust")
_AUTHORIZED = "/etc/ssh/llmgw_authorized_keys"
_QUESTIONS = ("journalctl ", "systemctl is-active ", "systemctl is-enabled ", "systemctl show ")

_MAKE = """\
set -e
mount -t tmpfs -o size=256m tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o lowerdir=/,upperdir="$1/upper",workdir="$1/work" overlay "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mkdir -p "$1/root/run/sshd"
shift_to=$1/root; shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do mkdir -p "$shift_to$1"; mount --rbind "$1" "$shift_to$1"; shift; done
shift
exec chroot "$shift_to" "$@"
"""
_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {keys}/host
AuthorizedKeysFile {authorized}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
MaxStartups 100
"""


@define(eq=False)
class SshMachine:
    """Its files are at `root`, as this machine's programs see them."""

    directory: Path
    port: int
    keys: Path
    _process: subprocess.Popen[bytes] | None = None
    root: Path = Path()

    @property
    def login(self) -> tuple[str, ...]:
        return ("--addr", "127.0.0.1", "--ssh-port", str(self.port), "--ssh-identity", str(self.keys / "login"))

    def start(self) -> None:
        """From nothing: all that was on it is gone."""
        own = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", _MAKE)
        place = ("machine", str(self.directory / "tree"), *_foreign(self.directory))
        sshd = ("--", SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config"))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen((*own, *place, *sshd), stderr=log)
        try:
            self._wait_until_made()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        try:
            os.kill(self._pid, signal.SIGKILL)  # the first of its processes, and with it all others
            self._process.wait(DEADLINE_S)
        except (OSError, IndexError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(DEADLINE_S)

    def change_host_key(self) -> None:
        """As a machine that was installed anew."""
        self.stop()
        make_key(self.keys / "host")
        self.start()
        self.prepare()

    def prepare(self) -> None:
        """What every machine has, and what stands in for systemd."""
        for name in (".bashrc", ".ssh/environment", ".ssh/rc"):
            self.path(f"/root/{name}").unlink(missing_ok=True)  # sshd's shells would read what is this machine's own
        self.write("/run/systemd/system/.keep", "")
        self.write(_AUTHORIZED, (self.keys / "login.pub").read_text())
        self.write("/etc/machine-id", f"{os.urandom(16).hex()}\n")
        program = Path(fake_systemd.__file__).read_text()
        for name in STAND_INS:
            self.write(f"/usr/local/sbin/{name}", f"#!/usr/bin/python3 -I\n{program}", 0o755)

    def path(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    def run(self, *words: str) -> str:
        """In there, as root."""
        inside = ("nsenter", "--target", str(self._pid), "--mount", "--pid", "--root", "--wd=/", *words)
        return subprocess.run(inside, check=True, capture_output=True, text=True).stdout

    @property
    def calls(self) -> list[str]:
        """What systemd's stand-in was called with, without mere questions."""
        try:
            lines = self.read("/var/lib/fake-systemd/calls").splitlines()
        except FileNotFoundError:
            return []
        return [each for each in lines if not each.startswith(_QUESTIONS)]

    @property
    def _log(self) -> Path:
        return self.directory / "sshd.log"

    @property
    def _pid(self) -> int:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(children[0])

    def _wait_until_made(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if b"Server listening" in self._log.read_bytes():
                self.root = Path(f"/proc/{self._pid}/root")
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.02)
        pytest.skip(f"cannot make a machine here: {self._log.read_text()[-500:]}")


@contextmanager
def ssh_machine(directory: Path) -> Iterator[SshMachine]:
    if os.geteuid() != 0 or not os.path.exists(SSHD) or shutil.which("unshare") is None:
        pytest.skip("needs root, OpenSSH's server and unshare, to make a machine that ssh reaches")
    keys = directory / "keys"
    keys.mkdir(parents=True)
    (directory / "tree").mkdir()
    for name in ("host", "login"):
        make_key(keys / name)
    machine = SshMachine(directory, free_port(), keys)
    (directory / "sshd_config").write_text(_CONFIG.format(port=machine.port, keys=keys, authorized=_AUTHORIZED))
    try:
        machine.start()
        machine.prepare()
        yield machine
    finally:
        machine.stop()


def make_key(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}.pub")):
        each.unlink(missing_ok=True)
    words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))
    subprocess.run(words, check=True)


def _foreign(directory: Path) -> list[str]:
    """What of this program's own lies on other file systems than /, and an overlay over / lacks."""
    here = os.stat("/").st_dev
    places = {sys.prefix, sys.base_prefix, *(path for path in sys.path if os.path.isdir(path)), str(directory)}
    return sorted(place for place in places if os.stat(place).st_dev != here)


EMPTY_ZIP = "PK\x05\x06" + "\0" * 18


def a_release(path: Path, platform: str = "linux-amd64", script: str = "") -> Path:
    """A file that says of itself what a release does, ends as one, and runs this program or that script."""
    llmgw = Path(sys.executable).with_name("llmgw")
    script = script or f'exec {shlex.quote(str(llmgw))} "$@"\n'
    path.write_text(f"#!/bin/sh\n# llmgw-0.1.0 for {platform} (v0.1.0, 0123abcd).\n{script}{EMPTY_ZIP}")
    path.chmod(0o755)
    return path

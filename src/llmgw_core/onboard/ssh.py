"""ssh to the machine: one authentication, then commands over it.

Rules: the system's own client with lists of words; only the known_hosts file that this program keeps counts, and a host
is either new to it or shows the very key that stands there; no password can be asked for; what is secret goes through
standard input.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from attrs import define, evolve

from llmgw_core.errors import LlmgwError
from llmgw_core.onboard.known_hosts import fingerprint_of, is_named, lines_of, with_lines
from llmgw_core.onboard.request import SYSTEM_PATH, Login
from llmgw_core.onboard.words import SSH_FAILED, explain_ended, explain_ssh
from llmgw_core.provision.commands import Ended, run
from llmgw_core.provision.words import last_words

CONNECT_S = 10
OPEN_S = 40.0
END_S = 1.0
"""For the connection to end once nothing is sent any more; what still runs there does not keep us."""
# A Unix socket's path has 108 bytes at most, and ssh adds some of its own.
_PLACE = re.compile(r"[A-Za-z0-9/._-]{1,60}")

# ssh_config(5). What a user's own configuration says stands behind these; ProxyJump and the like it may say.
_OPTIONS = {
    # Before all others. An older client has no KnownHostsCommand (OpenSSH 8.5), and then need not be told of it.
    "IgnoreUnknown": "*",
    "BatchMode": "yes",
    "CheckHostIP": "no",
    "ClearAllForwardings": "yes",
    "ConnectTimeout": str(CONNECT_S),
    "ControlPersist": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "GlobalKnownHostsFile": "/dev/null",
    "HashKnownHosts": "no",
    "KnownHostsCommand": "none",
    "LogLevel": "INFO",
    "NoHostAuthenticationForLocalhost": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "ServerAliveCountMax": "3",
    "ServerAliveInterval": "10",
    "Tunnel": "no",
    "UpdateHostKeys": "no",
    "VerifyHostKeyDNS": "no",
}


BEGINS = "llmgw-onboard-node: the output begins"
# One line, and no backslash: for whatever shell a login has. What its startup files print stands before the mark, which
# begins a line of its own; what they set (a mask, a PATH that the unit has not, a language) does not count.
_PLAINLY = f'umask 022; export LC_ALL=C PATH={":".join(SYSTEM_PATH)}; cd /; echo; echo "{BEGINS}"; exec "$@"'


class NotReached(LlmgwError):
    """ssh failed, and not the command."""


class RemoteFailed(LlmgwError):
    """A command of ours failed on the machine."""


def ssh_words(login: Login, place: str, checking: str) -> tuple[str, ...]:
    """Up to the host's name. Pure. `checking`: `yes`, or `accept-new` for a host that is not known yet."""
    # In a key's path % begins a token.
    identity = ("-i", login.identity.replace("%", "%%"), "-o", "IdentitiesOnly=yes") if login.identity else ()
    return (
        *("ssh", "-T", "-S", f"{place}/s"),
        *(word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")),
        # Else a HostName of the user's own configuration is what the key is known by, and nobody finds it here again.
        *("-o", f"HostKeyAlias={login.known_name}"),
        *("-o", f"StrictHostKeyChecking={checking}", "-o", f"UserKnownHostsFile={place}/known"),
        *identity,
        *("-p", str(login.port), "-l", login.user, "--", login.address),
    )


@define(eq=False)
class Session:
    """An open connection."""

    login: Login
    known_hosts: Path
    new_keys: tuple[str, ...]
    """Lines, of a host that was not known."""
    _place: str
    become: tuple[str, ...] = ()
    """Before a command that must be root's."""

    def run(
        self, words: Sequence[str], timeout_s: float, *, stdin: IO[bytes] | None = None, said: str | None = None
    ) -> Ended:
        """Raises `NotReached`; a command that fails is its own end."""
        return self._run((), words, timeout_s, stdin, said)

    def _run(
        self, become: Sequence[str], words: Sequence[str], timeout_s: float, stdin: IO[bytes] | None, said: str | None
    ) -> Ended:
        program, *options = ssh_words(self.login, self._place, "yes")
        # Behind sudo, which has a mask and a PATH of its own.
        plainly = (*become, "sh", "-c", _PLAINLY, "sh", *words)
        argv = (program, "-o", "ControlMaster=no", *options, shlex.join(plainly))
        ended = _without_greeting(run(argv, timeout_s, stdin, said))
        if ended.code == SSH_FAILED:
            raise NotReached(explain_ended(self.login, ended.stderr))
        return ended

    def run_as_root(
        self, words: Sequence[str], timeout_s: float, *, stdin: IO[bytes] | None = None, said: str | None = None
    ) -> Ended:
        """Raises `RemoteFailed` too."""
        ended = self._run(self.become, words, timeout_s, stdin, said)
        if ended.code != 0:
            shown = shlex.join(words) if len(words) < 6 else words[0]
            why = "was not over in time" if ended.code is None else f"failed ({ended.code})"
            raise RemoteFailed(
                f"on {self.login.address}, {shown} {why}: {last_words(ended.output) or 'without a word'}"
            )
        return ended


def _without_greeting(ended: Ended) -> Ended:
    """What the command printed itself; all of it where no shell has come so far."""
    _, begins, printed = ended.stdout.partition(f"\n{BEGINS}\n")
    return evolve(ended, stdout=printed) if begins else ended


@contextmanager
def open_session(login: Login, known_hosts: Path) -> Iterator[Session]:
    """Raises `NotReached`. The file of known hosts is read, and not changed."""
    kept = lines_of(read_known(known_hosts), login.known_name)
    with tempfile.TemporaryDirectory(prefix="llmgw-", dir=_short_place()) as place:
        known = Path(place, "known")
        known.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        master = _start_master(login, place, "yes" if kept else "accept-new")
        try:
            _wait_for(master, login, place, known_hosts)
            new = () if kept else tuple(known.read_text(encoding="utf-8").splitlines())
            yield Session(login, known_hosts, new, place)
        finally:
            _end(master)


def read_known(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise LlmgwError(f"cannot read {path}, the host keys that are known: {error}") from error


def check_named_key(session: Session, wanted: str) -> None:
    """Raises where the host's key is not the one that the operator named."""
    lines = session.new_keys or lines_of(read_known(session.known_hosts), session.login.known_name)
    if wanted and not is_named(lines, wanted):
        shown = ", ".join(map(fingerprint_of, lines))
        raise NotReached(
            f"the host key of {session.login.known_name} is {shown}, and --host-key names another: either that is of "
            "another type of its keys, or somebody stands between. No certificate was issued"
        )


def remember_keys(session: Session) -> None:
    """The file as a whole, and one run at a time: whole fleets are onboarded side by side."""
    path = session.known_hosts
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(with_lines(read_known(path), session.new_keys))
                os.replace(name, path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        finally:
            os.close(directory)
    except OSError as error:
        raise LlmgwError(f"cannot remember the host key in {path}: {error.strerror}") from error


def _short_place() -> str:
    place = tempfile.gettempdir()
    # In ssh's options a space separates, and % begins a token.
    return place if _PLACE.fullmatch(place) else "/tmp"  # noqa: S108 - mkdtemp makes what nobody else can enter


def _start_master(login: Login, place: str, checking: str) -> subprocess.Popen[bytes]:
    """It goes on as long as its standard input is open: whatever ends this program ends it too."""
    program, *words = ssh_words(login, place, checking)
    with open(f"{place}/said", "wb") as said:
        try:
            return subprocess.Popen(
                (program, "-M", *words, "cat"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise NotReached(f"cannot run ssh: {error.strerror}; install OpenSSH's client") from error


def _wait_for(master: subprocess.Popen[bytes], login: Login, place: str, known_hosts: Path) -> None:
    """Its socket is there once it is let in."""
    deadline = time.monotonic() + OPEN_S
    while not os.path.exists(f"{place}/s"):
        ended = master.poll() is not None
        if ended or time.monotonic() > deadline:
            said = Path(place, "said").read_text(encoding="utf-8", errors="replace")
            raise NotReached(explain_ssh(login, said or ("" if ended else "timed out"), str(known_hosts)))
        time.sleep(0.02)


def _end(master: subprocess.Popen[bytes]) -> None:
    if master.stdin is not None:
        with suppress(OSError):
            master.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        master.wait(END_S)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(master.pid, number)
        with suppress(subprocess.TimeoutExpired):
            master.wait(END_S)
            return

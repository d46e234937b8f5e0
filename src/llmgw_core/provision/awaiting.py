"""Waits until a started machine answers, and puts the release on it.

Rules: one line of progress; every wait ends; what a silent machine is left as is said, and how to begin anew. A host
key is asked of the guest agent, over the hypervisor and not over the network, so that nobody can stand between.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, field, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.provision.commands import Ended, run
from llmgw_core.provision.image import digest_of
from llmgw_core.provision.user_data import CHANGED_MACHINE_ID
from llmgw_core.provision.words import explain_failure, last_words

EVERY_S = 2.0
ANSWER_S = 30.0
COPY_S = 1800.0
SSH_PORT = 22
RELEASE = "/usr/local/bin/llmgw"

# What is asked of the machine in one go. cloud-init(1): status prints `status: running|done|error|…`.
_ASK = f"""\
test -e {CHANGED_MACHINE_ID} && echo 'status: boots once more'
cloud-init status
cat /etc/ssh/ssh_host_*_key.pub
"""

Progress = Callable[[str], None]


@frozen
class Answer:
    """What a machine says of itself by its guest agent."""

    status: str = ""
    """Of cloud-init; empty: it did not say."""
    host_keys: tuple[str, ...] = ()
    forbidden: bool = False
    """Whether its agent runs no commands: the RHEL family's is set up so."""


@define(eq=False)
class Waiting:
    vmid: int
    address: str
    limit_s: float
    progress: Progress
    _stage: str = field(default="nothing answers yet", init=False)

    def until_ready(self) -> Answer:
        """Raises when it is not within the time."""
        begun = time.monotonic()
        while True:
            answer = self._look()
            if answer is not None:
                return answer
            waited = time.monotonic() - begun
            if waited > self.limit_s:
                raise LlmgwError(f"VM {self.vmid} is not ready after {self.limit_s:g} s: {self._stage}")
            self.progress(f"{waited:.0f} s: {self._stage}")
            time.sleep(min(EVERY_S, max(self.limit_s - waited, 0.01)))

    def _look(self) -> Answer | None:
        pinged = run(("qm", "guest", "cmd", str(self.vmid), "ping"), ANSWER_S)
        if pinged.code != 0:
            self._stage = f"its guest agent does not answer ({last_words(pinged.output) or 'no word'})"
            return None
        if not _is_open(self.address, SSH_PORT):
            self._stage = f"its guest agent answers, and port {SSH_PORT} of {self.address} is not open"
            return None
        asked = run(("qm", "guest", "exec", str(self.vmid), "--timeout", "20", "--", "sh", "-c", _ASK), ANSWER_S)
        answer = read_answer(asked)
        if answer.forbidden or answer.status in ("done", "disabled"):
            return answer
        if answer.status.startswith(("error", "degraded")):
            log = "/var/log/cloud-init-output.log"
            raise LlmgwError(f"VM {self.vmid} answers, but its cloud-init says {answer.status}: see {log} there")
        self._stage = f"it answers; cloud-init: {answer.status or 'no word'}"
        return None


def read_answer(asked: Ended) -> Answer:
    """From what `qm guest exec` printed. Pure."""
    if asked.code != 0:
        return Answer(forbidden="has been disabled" in asked.output)
    try:
        said = str(json.loads(asked.stdout).get("out-data", ""))
    except (ValueError, AttributeError):
        return Answer()
    statuses = [line.removeprefix("status: ") for line in said.splitlines() if line.startswith("status: ")]
    keys = tuple(line for line in said.splitlines() if line.startswith(("ssh-", "ecdsa-")))
    return Answer(statuses[0].strip() if statuses else "", keys)


def put_release(binary: Path, address: str, user: str, host_keys: Sequence[str]) -> str:
    """What the installed release says of its version; raises where it cannot be put there."""
    if not host_keys:
        raise LlmgwError(
            f"{address} does not tell its ssh host key by the guest agent, so {binary} is not copied there: "
            "llmgw-onboard-node --binary does that, and shows the key"
        )
    with tempfile.TemporaryDirectory(prefix="llmgw-") as directory:
        known = Path(directory, "known_hosts")
        known.write_text("".join(f"{address} {key}\n" for key in host_keys), encoding="utf-8")
        login = (*_SSH, "-o", f"UserKnownHostsFile={known}", "-l", user, address)
        try:
            with binary.open("rb") as file:
                ended = run((*login, _install(user, digest_of(binary))), COPY_S, stdin=file)
        except OSError as error:
            raise LlmgwError(f"{binary} could not be put on {address}: {error.strerror} ({error.filename})") from error
    if ended.code != 0:
        raise LlmgwError(f"{binary} could not be put on {address}: {explain_failure(('ssh', address), *_of(ended))}")
    # A login may greet on standard output too.
    versions = [line for line in ended.stdout.splitlines() if line.startswith("llmgw ")]
    return (versions or [last_words(ended.stdout)])[-1]


_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10")


def _of(ended: Ended) -> tuple[int | None, str]:
    return ended.code, ended.output


def _install(user: str, digest: str) -> str:
    """One line of shell for the machine: whole and compared with its digest, or not under its name."""
    become = "" if user == "root" else "sudo "
    script = (
        f'set -e; new=$(mktemp {RELEASE}.XXXXXX); trap \'rm -f "$new"\' EXIT; cat > "$new"; '
        f'echo "{digest}  $new" | sha256sum -c --quiet; chmod 755 "$new"; mv "$new" {RELEASE}; {RELEASE} --version'
    )
    return f"{become}sh -c '" + script.replace("'", "'\\''") + "'"


def _is_open(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=3):
            return True
    except OSError:
        return False

"""Makes the machine; and where that fails, unmakes what this run has made.

Rules: what is removed carries this run's mark, so that nobody else's machine ever is; removing is not interrupted, and
what cannot be removed is named with the command that does it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field

from llmgw_core.errors import LlmgwError
from llmgw_core.provision.commands import CommandFailed, ignore_signals, run, run_or_raise
from llmgw_core.provision.parsing import parse_object
from llmgw_core.provision.steps import Steps, remove_command
from llmgw_core.provision.words import explain_failure

QUICK_S = 120.0
IMPORT_S = 4 * 3600.0
"""A big image over a slow network."""
LOCK = Path("/run/lock/llmgw-provision-node.lock")
LOCK_S = 300.0

Say = Callable[[str], None]


class NotMade(LlmgwError):
    """Nothing is left of it, or it says what is."""


@contextmanager
def one_at_a_time(say: Say, path: Path = LOCK) -> Iterator[None]:
    """From looking until the VM's id is taken: another run here sees what this one took."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        _lock(file.fileno(), say)
        yield


def _lock(descriptor: int, say: Say) -> None:
    deadline, told = time.monotonic() + LOCK_S, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LlmgwError(f"another run has held {LOCK} for {LOCK_S:g} s: wait for it, or end it") from None
            if not told:
                say("waiting for another run here")
            told = True
            time.sleep(0.2)
        else:
            return


@define(eq=False)
class Making:
    vmid: int
    steps: Steps
    mark: str
    """This run's, as the VM's description has it."""
    say: Say
    _snippet: Path | None = field(default=None, init=False)
    _started: bool = field(default=False, init=False)

    def take(self) -> None:
        """The id, name, address and devices, in one quick command."""
        with self._undone_on_failure():
            self._run(self.steps.create, QUICK_S)

    def fill(self) -> None:
        with self._undone_on_failure():
            self._snippet = self._write_snippet()
            for argv in self.steps.fill:
                self._run(argv, IMPORT_S)
            self._started = True
            self._run(self.steps.start, QUICK_S)
            self._run(self.steps.finish, QUICK_S)

    def _run(self, argv: tuple[str, ...], timeout_s: float) -> None:
        self.say(shlex.join(argv))
        run_or_raise(argv, timeout_s)

    def _write_snippet(self) -> Path:
        path = Path(run_or_raise(("pvesm", "path", self.steps.snippet_volume), QUICK_S).stdout.strip())
        self.say(f"write {path}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, self.steps.user_data)
        except OSError as error:
            raise LlmgwError(f"cannot write {path}: {error.strerror}") from error
        return path

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        try:
            yield
        except LlmgwError as error:
            raise NotMade(f"{error}\n{self._undo()}") from error
        except BaseException:
            self.say(self._undo())
            raise

    def _undo(self) -> str:
        """What is left."""
        ignore_signals()
        return "; ".join([*self._remove_machine(), *self._remove_snippet()]) or "nothing of it is left"

    def _remove_machine(self) -> list[str]:
        try:
            description = self._description()
        except (LlmgwError, ValueError) as error:
            way = f"see `qm config {self.vmid}`; `{remove_command(self.vmid)}` removes it"
            return [f"whether VM {self.vmid} is left is not known ({error}): {way}"]
        if description is None or self.mark not in description:
            return []
        self.say(f"removing VM {self.vmid}")
        stop, destroy = self.steps.undo
        if self._started:
            with suppress(OSError):
                run(stop, QUICK_S)
        ended = run(destroy, QUICK_S)
        if ended.code == 0:
            return []
        return [f"VM {self.vmid} is left: {explain_failure(destroy, ended.code, ended.output)}; {shlex.join(destroy)}"]

    def _description(self) -> str | None:
        """`None`: there is no such VM here."""
        argv = ("pvesh", "get", f"/nodes/localhost/qemu/{self.vmid}/config", "--output-format", "json")
        try:
            return str(parse_object(run_or_raise(argv, QUICK_S).stdout).get("description", ""))
        except CommandFailed as error:
            if "does not exist" in error.ended.output:
                return None
            raise

    def _remove_snippet(self) -> list[str]:
        if self._snippet is None:
            return []
        try:
            self._snippet.unlink(missing_ok=True)
        except OSError as error:
            return [f"{self._snippet} is left ({error.strerror}): rm {shlex.quote(str(self._snippet))}"]
        return []


def _write(path: Path, text: str) -> None:
    """Whole or not at all; root's only, as it says who gets in."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

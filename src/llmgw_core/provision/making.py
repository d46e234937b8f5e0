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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise LlmgwError(f"cannot open {path} ({error.strerror}): run this as root") from error
    with file:
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
    mark: str
    """This run's, as the VM's description has it."""
    say: Say
    _steps: Steps | None = field(default=None, init=False)
    """`None`: nothing was changed yet."""
    _snippet: Path | None = field(default=None, init=False)
    _started: bool = field(default=False, init=False)

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """From the first change on, whatever ends this early unmakes what was made."""
        try:
            yield
        except LlmgwError as error:
            if self._steps is None:
                raise
            raise NotMade(f"{error}\n{self._undo(self._steps)}") from error
        except BaseException:
            if self._steps is not None:
                self.say(self._undo(self._steps))
            raise

    def take(self, steps: Steps) -> None:
        """The id, name, address and devices, in one quick command."""
        self._steps = steps
        self._run(steps.create, QUICK_S)

    def fill(self, steps: Steps) -> None:
        self._snippet = self._find_snippet(steps)
        self._write_snippet(self._snippet, steps)
        for argv in steps.fill:
            self._run(argv, IMPORT_S)
        self._started = True
        self._run(steps.start, QUICK_S)
        self._run(steps.finish, QUICK_S)

    def _run(self, argv: tuple[str, ...], timeout_s: float) -> None:
        self.say(shlex.join(argv))
        run_or_raise(argv, timeout_s)

    def _find_snippet(self, steps: Steps) -> Path:
        argv = ("pvesm", "path", steps.snippet_volume)
        path = Path(run_or_raise(argv, QUICK_S).stdout.strip())
        if not path.is_absolute():
            raise LlmgwError(f"{shlex.join(argv)} says {str(path)!r}, which is no path of a file")
        return path

    def _write_snippet(self, path: Path, steps: Steps) -> None:
        self.say(f"write {path}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, steps.user_data)
        except OSError as error:
            raise LlmgwError(f"cannot write {path}: {error.strerror}") from error

    def _undo(self, steps: Steps) -> str:
        """What is left."""
        ignore_signals()
        return "; ".join([*self._remove_machine(steps), *self._remove_snippet()]) or "nothing of it is left"

    def _remove_machine(self, steps: Steps) -> list[str]:
        try:
            description = self._description()
        except (LlmgwError, ValueError) as error:
            way = f"see `qm config {self.vmid}`; `{remove_command(self.vmid)}` removes it"
            return [f"whether VM {self.vmid} is left is not known ({error}): {way}"]
        if description is None or self.mark not in description:
            return []
        self.say(f"removing VM {self.vmid}")
        stop, destroy = steps.undo
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

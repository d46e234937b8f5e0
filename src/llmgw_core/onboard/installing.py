"""Carries out steps on the machine.

Rules: a file is complete, compared by its digest and on the disk before it has its name, and readable by nobody else
until then; what a private key is never stands in a command's words; a program is asked for its version before it takes
the old one's place.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import frozen

from llmgw_core.onboard.ssh import Session
from llmgw_core.onboard.steps import PROGRAM, QUICK_S, Put, Run, Step

COPY_S = 3600.0
Say = Callable[[str], None]

# One line, for whatever shell a login has. A run that was killed may have left a file of the same kind: it goes first.
_PUT = (
    'set -eu; umask 022; if [ -d "$1" ]; then echo "$1 is a directory: remove it" >&2; exit 1; fi; '
    'directory=${1%/*}; name=${1##*/}; mkdir -p "$directory"; umask 077; '
    'rm -f "$directory/.$name.onboard."??????; new=$(mktemp "$directory/.$name.onboard.XXXXXX"); '
    'trap \'rm -f "$new"\' EXIT; trap "exit 130" HUP INT TERM; '
    'cat > "$new"; echo "$3  $new" | sha256sum -c --quiet - >&2; chmod "$2" "$new"; '
    'if [ -n "$4" ]; then "$new" "$4" </dev/null >&2; fi; '
    'sync "$new" 2>/dev/null || :; mv -f "$new" "$1"'
)


@frozen
class Installing:
    session: Session
    say: Say

    def carry_out(self, steps: Iterable[Step]) -> None:
        """Raises `RemoteFailed` or `NotReached` at the first that fails."""
        for step in steps:
            self.say(describe_step(step))
            match step:
                case Put():
                    self._put(step)
                case Run(words):
                    self.session.run_as_root(words, QUICK_S)

    def _put(self, step: Put) -> None:
        check = "--version" if step.mode == PROGRAM else ""
        words = ("sh", "-c", _PUT, "put", step.path, step.mode, step.sha256, check)
        if step.source:
            with Path(step.source).open("rb") as file:
                self.session.run_as_root(words, COPY_S, stdin=file)
        else:
            self.session.run_as_root(words, QUICK_S, said=step.content.decode())


def describe_step(step: Step) -> str:
    """As it is told, and printed by a dry run. Pure."""
    match step:
        case Run(words):
            return shlex.join(words)
        case Put(path, mode, source=source):
            return f"write {path} (mode 0{mode})" + (f", from {source}" if source else "")


def describe_content(step: Put) -> str:
    """What a dry run shows of a file; a secret is hidden. Pure."""
    if step.secret:
        return "(a private key, made when it is issued; never shown)"
    return f"(SHA-256 {step.sha256})" if step.source else step.content.decode()

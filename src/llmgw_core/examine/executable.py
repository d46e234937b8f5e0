"""Which file a program's command would run on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from llmgw_core.engine.info import Program
from llmgw_core.errors import LlmgwError

NOT_FOUND = "engine not found"
"""How the reason begins where an engine is not installed; whoever shows it adds the way out that is theirs."""


class EngineNotFound(LlmgwError):
    """No file on this machine answers to the engine's program."""


def parse_executable(given: str) -> tuple[str, ...]:
    """The command that an operator names: one file, or words as a shell would split them."""
    if os.path.exists(given):
        return (given,)
    try:
        words = tuple(shlex.split(given))
    except ValueError as error:
        raise EngineNotFound(f"cannot read {given!r} as a command: {error}") from error
    if not words:
        raise EngineNotFound("the executable that was named is empty")
    return words


def find_program(program: Program, beside: str | None = None) -> tuple[str, ...]:
    """The first of the program's commands that is there, its first word absolute.

    Looked for in the directory `beside` first (programs of one build live together), then in PATH, then where llmgw
    itself is installed: an engine in the same environment needs no activated environment.
    """
    for command in program.commands:
        for path in (beside, None, os.path.dirname(sys.executable)):
            found = shutil.which(command[0], path=path) if path != "" else None
            if found:
                return (os.path.abspath(found), *command[1:])
    names = " nor ".join(command[0] for command in program.commands)
    where = "is in PATH or beside llmgw"
    raise EngineNotFound(f"{NOT_FOUND}: {'neither ' if ' nor ' in names else 'no '}{names} {where}")


def resolve(command: Sequence[str]) -> tuple[str, ...]:
    """`command` with its first word made absolute; raises `EngineNotFound`."""
    found = shutil.which(command[0]) if command else None
    if found is None:
        raise EngineNotFound(f"{NOT_FOUND}: {' '.join(command)!r} is not an executable file")
    return (os.path.abspath(found), *command[1:])


def shown(command: Sequence[str]) -> str:
    """The command for people: the file behind all links, unless its name decides what runs (an interpreter's venv)."""
    return os.path.realpath(command[0]) if len(command) == 1 else shlex.join(command)

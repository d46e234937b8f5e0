"""The commands that ask vLLM about itself, and what their output says: help, version, dry run.

Pure: nothing here runs them.  None of them loads a model or opens a port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import evolve

from llmgw_core.engine import Command, Exit
from llmgw_core.help.environment import HELP_ENV, UNSET_HELP_ENV
from llmgw_core.help.last_words import log_lines, parser_error

_SENTINEL = "--zz-sentinel"
_VERSION = re.compile(r"^(?:vllm[ ,]+)?(?:version:? )?v?(\d+\.\d+[\w.+-]*)\s*$", re.MULTILINE | re.ASCII)
_UNRECOGNIZED = re.compile(r": error: unrecognized arguments: (.*)$")


def help_commands(program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
    """`--help=all` from 0.11.2 on; plain `--help` is the whole list before, where `=all` is a search."""
    return tuple(_ask(program, executable, "serve", word) for word in ("--help=all", "--help"))


def version_command(program: str, executable: tuple[str, ...]) -> Command:
    return _ask(program, executable, "--version")


def _ask(program: str, executable: tuple[str, ...], *args: str) -> Command:
    return Command(program, executable, args, env=HELP_ENV, unset_env=UNSET_HELP_ENV)


def read_version(text: str) -> str | None:
    """The last line that is a version and nothing else: log lines stand before it, on stdout too."""
    found = _VERSION.findall(text)
    return found[-1] if found else None


def dry_run(command: Command) -> Command:
    """With one flag that no vLLM has it checks all arguments, starts nothing and names all that it does not know.

    Run on 0.32.0 and 0.33.0.
    """
    return evolve(
        command,
        extra_args=(*command.extra_args, _SENTINEL),
        env={**command.env, **HELP_ENV},
        unset_env=(*command.unset_env, *UNSET_HELP_ENV),
        secret_env={},
    )


def read_dry_run(exit: Exit) -> tuple[str, ...] | None:
    if exit.code != 2:
        return None
    line = parser_error(log_lines(exit.log_tail))
    if line is None:
        return None
    match = _UNRECOGNIZED.search(line)
    if match is None:
        # The parser stops at the first wrong value, before it looks for unknown flags.
        return (line.partition(": error: ")[2] or line,)
    words = match[1].split()
    if _SENTINEL not in words:
        return None
    return tuple(_with_values([word for word in words if word != _SENTINEL]))


def _with_values(words: Sequence[str]) -> Iterator[str]:
    """Each flag with the words that follow it."""
    flag: list[str] = []
    for word in words:
        if word.startswith("-") and flag:
            yield " ".join(flag)
            flag = []
        flag.append(word)
    if flag:
        yield " ".join(flag)

"""The commands that ask llama.cpp about itself, and what their output says: help, version, dry run.

Pure: nothing here runs them.  None of them starts a server, loads weights or opens a connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import evolve

from llmgw_core.engine import Command, Exit
from llmgw_core.help.environment import HELP_ENV, UNSET_HELP_ENV
from llmgw_engine_llamacpp.info import SERVER, UNSET_ENV

_ENV = {**HELP_ENV, "XDG_CONFIG_HOME": "/nonexistent"}

# Parsed, they act: --rpc connects (b10991 aborts when a worker is not there), --log-file truncates the file (b10434,
# run) and --log-prompts-dir makes the directory.
_ACTING = ("--rpc", "--log-file", "--log-prompts-dir")
_ACTING_ENV = ("LLAMA_LOG_FILE", "LLAMA_ARG_LOG_FILE")

_UNSET = (*UNSET_ENV, *UNSET_HELP_ENV)

_VERSION = re.compile(
    r"^version: (?P<first>\S+) \((?:build (?P<build>\d+), commit )?(?P<commit>\w+)\)", re.MULTILINE | re.ASCII
)


def help_command(program: str, executable: tuple[str, ...]) -> Command:
    return Command(program, executable, ("--help",), env=_ENV, unset_env=_UNSET)


def version_command(program: str, executable: tuple[str, ...]) -> Command:
    """The RPC worker tells no version, and answers an unknown flag with its help: it is asked for that."""
    args = ("--version",) if program == SERVER else ("--help",)
    return Command(program, executable, args, env=_ENV, unset_env=_UNSET)


def read_version(text: str) -> str | None:
    """`b10991`, from `version: 10991 (571d0d5)` or `version: 0.4.1-dev (build 10991, commit 571d0d5)`.

    Packages built outside llama.cpp's repository all call themselves build 1 or 0; there the commit is the version.
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    build = match["build"] or match["first"]
    if not build.isdecimal():
        return match["first"]
    return f"b{build}" if int(build[:9]) > 1 else match["commit"]


def dry_run(command: Command) -> Command | None:
    """`--help` at the end makes llama-server validate all arguments, print its help and exit (b10068 to b10991)."""
    if command.program != SERVER:
        return None
    return evolve(
        command,
        args=tuple(_harmless(command.args)),
        extra_args=(*_harmless(command.extra_args), "--help"),
        env={**{name: value for name, value in command.env.items() if name not in _ACTING_ENV}, **_ENV},
        secret_env={},
        directories=(),
        files=(),
    )


def _harmless(args: Sequence[str]) -> Iterator[str]:
    """Without the flags that act while they are parsed, and their values."""
    skip = False
    for arg in args:
        acts = not skip and arg.replace("_", "-") in _ACTING
        if not skip and not acts:
            yield arg
        skip = acts


def read_dry_run(exit: Exit) -> tuple[str, ...] | None:
    from llmgw_engine_llamacpp.failures import argument_errors  # many patterns, which few commands need

    if exit.code == 0:
        return ()
    return (argument_errors(exit.log_tail) or None) if exit.code == 1 else None

"""The commands that ask the simulated engine about itself, and what their output says.  Pure."""

from __future__ import annotations

import re

from llmgw_core.engine import Command, FlagTable
from llmgw_core.help.argparse_text import Program, read_argparse_help
from llmgw_core.help.environment import HELP_ENV, UNSET_HELP_ENV

_VERSION = re.compile(r"^llmgw-sim (\d\S*)", re.MULTILINE)
_HELP = Program("llmgw-sim --help", called=r"llmgw[-_](?:engine[-_])?sim")


def help_command(program: str, executable: tuple[str, ...]) -> Command:
    return Command(program, executable, ("--help",), env=HELP_ENV, unset_env=UNSET_HELP_ENV)


def version_command(program: str, executable: tuple[str, ...]) -> Command:
    return Command(program, executable, ("--version",), env=HELP_ENV, unset_env=UNSET_HELP_ENV)


def read_help(text: str) -> FlagTable:
    return read_argparse_help(text, _HELP)


def read_version(text: str) -> str | None:
    match = _VERSION.search(text)
    return match[1] if match else None

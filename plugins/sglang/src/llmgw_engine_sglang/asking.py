"""The commands that ask SGLang about itself, and what their output says: help and version.

Pure: nothing here runs them.  None of them loads a model or opens a port.
"""

from __future__ import annotations

import re

from llmgw_core.engine import Command
from llmgw_core.help.environment import HELP_ENV, UNSET_HELP_ENV
from llmgw_engine_sglang.executable import is_script

_PRINT_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
_VERSION = re.compile(r"^(?:sglang\b\D{0,20})?v?(\d+\.\d+[\w.+-]*)\s*$", re.MULTILINE | re.ASCII | re.IGNORECASE)


def help_commands(program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
    """`--model-type llm`, from 0.5.12, keeps the diffusion server's flags out."""
    if is_script(executable):
        words = (("serve", "--model-type", "llm", "--help"), ("serve", "--help"))
        return tuple(_ask(program, executable, *each) for each in words)
    return (_ask(program, executable, "--help"),)


def version_command(program: str, executable: tuple[str, ...]) -> Command:
    """The module has no `--version`; its distribution knows, and asking it imports neither torch nor SGLang."""
    if is_script(executable):
        return _ask(program, executable, "version")
    python = executable[: executable.index("-m")] if "-m" in executable else executable[:1]
    return _ask(program, python, "-c", _PRINT_VERSION)


def _ask(program: str, executable: tuple[str, ...], *args: str) -> Command:
    return Command(program, executable, args, env=HELP_ENV, unset_env=UNSET_HELP_ENV)


def read_version(text: str) -> str | None:
    """The last line that is a version, alone or after the name: log lines may stand before it."""
    found = _VERSION.findall(text)
    return found[-1] if found else None

"""The flags that SGLang's help text documents.

In: the text.  Out: a `FlagTable`; raises `NotCompleteHelp`.  Pure, any text.
Its usage block names every option, so that an option that is never described is the sign of a cut. Of `sglang serve
--help` only the first program's text counts: the diffusion server's, which has other flags, is appended to it.
"""

from __future__ import annotations

from llmgw_core.engine import FlagTable
from llmgw_core.help.argparse_text import Program, read_argparse_help

_PROGRAM = Program(
    complete="python3 -m sglang.launch_server --help",
    called=r"sglang|\blaunch_server\b",
    ways_out=(
        # 0.5.x: torch and triton must be importable even for --help.
        ("ModuleNotFoundError", "install what is missing beside SGLang"),
        ("ImportError", "repair the installation: SGLang cannot be imported"),
    ),
)


def read_help(text: str) -> FlagTable:
    return read_argparse_help(text, _PROGRAM)

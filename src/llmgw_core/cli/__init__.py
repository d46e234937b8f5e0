"""The `llmgw` command: parse, call, render.

Each command group is a module that is imported when its command runs, and imports what is heavy (plugins, trio, codecs)
inside the command that needs it: `llmgw --help` must stay quick.
"""

from __future__ import annotations

import sys

import click

from llmgw_core.cli.lazy import LazyGroup
from llmgw_core.errors import LlmgwError

OPERATOR_ERROR = 2
"""The exit code of a mistake that the operator can mend, as click uses it; an engine-check's "could not check" too."""


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"llmgw {version('llmgw-core')}")
        context.exit()


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "agent": ("llmgw_core.cli.agent:agent", "Run the agent of this node."),
        "ca": ("llmgw_core.cli.ca:ca", "Make an authority, and issue certificates."),
        "control": ("llmgw_core.cli.control:control", "Run the control plane."),
        "ctl": ("llmgw_core.cli.ctl:ctl", "Ask and tell a fleet what to do; check engines."),
        "engines": ("llmgw_core.cli.plugins:engines", "List the engine plugins, loaded and refused."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def llmgw() -> None:
    """Run LLM engines on a fleet of GPU machines."""


def main() -> None:
    """The command's entry point: an operator's mistake is one line on standard error and exit code 2."""
    try:
        llmgw(prog_name="llmgw")
    except* LlmgwError as group:
        for line in dict.fromkeys(line for error in _leaves(group) for line in str(error).splitlines()):
            click.echo(f"llmgw: {line}", err=True)
        sys.exit(OPERATOR_ERROR)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]

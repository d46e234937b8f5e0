"""The `llmgw` command: parse, call, render.

Each command group is a module that is imported when its command runs, and imports what is heavy (plugins, trio, codecs)
inside the command that needs it: `llmgw --help` must stay quick.
"""

from __future__ import annotations

import sys
from errno import ENOSPC
from os import strerror

import click

from llmgw_core.cli.lazy import LazyGroup
from llmgw_core.cli.output import print_nowhere, tell_mistake
from llmgw_core.cli.printable import printable_text
from llmgw_core.errors import LlmgwError

INTERRUPTED = 130
OPERATOR_ERROR = 2
"""The exit code of a mistake that the operator can mend, as click uses it; an engine-check's "could not check" too."""


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from llmgw_core.built_from import version_line

        click.echo(version_line("llmgw", "llmgw-core", "llmgw_core"))
        context.exit()


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "agent": ("llmgw_core.cli.agent:agent", "Run the agent of this node."),
        "ca": ("llmgw_core.cli.ca:ca", "Make an authority, and issue certificates."),
        "completion": (
            "llmgw_core.cli.completion:completion",
            "Print the script that makes a shell complete commands.",
        ),
        "control": ("llmgw_core.cli.control:control", "Run the control plane."),
        "ctl": ("llmgw_core.cli.ctl:ctl", "Ask and tell a fleet what to do; check engines."),
        "demo": ("llmgw_core.demo.app:demo", "Show a whole fleet on this machine, with made-up hardware."),
        "gateway": ("llmgw_core.cli.gateway:gateway", "Run a gateway, the address that users call."),
        "engines": ("llmgw_core.cli.plugins:engines", "List the engine plugins, loaded and refused."),
        "units": ("llmgw_core.cli.units:units", "Print the systemd unit of the agent, the control plane, a gateway."),
        "weights": ("llmgw_core.cli.weights:weights", "Prove that a copy of a model's weights is whole."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def llmgw() -> None:
    """Run LLM engines on a fleet of GPU machines."""


def main() -> None:
    """The command's entry point.

    An operator's mistake is one line on standard error and exit code 2; an interrupt is 130. A mistake of ours is a
    traceback, and 2 as well: whoever reads 1 as "findings" must not read a crash so.
    """
    try:
        code = _run()
    except BaseException as error:
        code = _tell(error)
    sys.exit(code)


def _run() -> int:
    output = sys.stdout
    try:
        code = llmgw(prog_name="llmgw", standalone_mode=False)
    except click.ClickException as error:
        return tell_mistake(error)
    except SystemExit as error:
        # Where the reader of click's own help has gone, click wraps the output, and ends with 1.
        code = error.code if sys.stdout is output else 0
    return code if isinstance(code, int) else 0


def _tell(error: BaseException) -> int:
    leaves = _leaves(error)
    if any(isinstance(leaf, KeyboardInterrupt | click.Abort) for leaf in leaves):
        click.echo("llmgw: interrupted", err=True)
        return INTERRUPTED
    if all(isinstance(leaf, OSError) and leaf.errno == ENOSPC for leaf in leaves):
        print_nowhere()
        click.echo(f"llmgw: cannot print: {strerror(ENOSPC)}", err=True)
        return OPERATOR_ERROR
    exits = [leaf.code for leaf in leaves if isinstance(leaf, SystemExit) and isinstance(leaf.code, int)]
    if exits:
        return exits[0]
    if all(isinstance(leaf, LlmgwError) for leaf in leaves):
        for line in dict.fromkeys(line for leaf in leaves for line in str(leaf).splitlines()):
            click.echo(f"llmgw: {printable_text(line)}", err=True)
    else:
        import traceback

        traceback.print_exception(error)
    return OPERATOR_ERROR


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]

"""What a command that takes its time says on standard error."""

from __future__ import annotations

import sys

import click
from attrs import define

from llmgw_core.cli.output import tell_mistake
from llmgw_core.cli.printable import printable_text
from llmgw_core.errors import LlmgwError

FAILED, REFUSED = 1, 2


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from llmgw_core.built_from import version_line

        click.echo(version_line("llmgw", "llmgw-core", "llmgw_core"))
        context.exit()


with_version = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show it, as `llmgw --version` does.",
)


def run_script(command: click.Command, name: str, not_done: type[LlmgwError]) -> None:
    """An entry point of its own. Exits 1 for `not_done`, 2 for every other refusal, 128 and its number for a signal."""
    from llmgw_core.provision.commands import Interrupted, signals_raise

    try:
        with signals_raise():
            command(prog_name=name, standalone_mode=False)
    except Interrupted as error:
        say(f"interrupted by {error}")
        sys.exit(128 + error.number)
    except click.ClickException as error:
        sys.exit(tell_mistake(error))
    except LlmgwError as error:
        for line in str(error).splitlines():
            say(line)
        sys.exit(FAILED if isinstance(error, not_done) else REFUSED)


def say(line: str) -> None:
    click.echo(f"llmgw: {printable_text(line)}", err=True)


@define
class Progress:
    """One line that changes; in a log only what is new."""

    _told: str = ""

    def __call__(self, line: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{printable_text(line)}", err=True, nl=False)
            return
        stage = line.partition(": ")[2] or line
        if stage != self._told:
            say(line)
        self._told = stage

    def clear(self) -> None:
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)

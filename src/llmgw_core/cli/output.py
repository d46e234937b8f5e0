"""Prints a command's result, for readers that go away and disks that are full."""

from __future__ import annotations

import os
import sys

import click
from click.exceptions import NoArgsIsHelpError

from llmgw_core.cli.printable import printable_layout, printable_text
from llmgw_core.errors import LlmgwError


def show(text: str) -> bool:
    """Print `text`; whether somebody still reads.

    A reader that has gone (`| head`) has read what it wanted: the command's exit code stands.
    """
    try:
        click.echo(printable_layout(text))
    except BrokenPipeError:
        print_nowhere()
        return False
    except (OSError, UnicodeError) as error:
        print_nowhere()
        raise LlmgwError(f"cannot print: {getattr(error, 'strerror', None) or error}") from error
    return True


def tell_mistake(error: click.ClickException) -> int:
    """In one line, and the exit code; a group without a command tells what commands there are."""
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        return error.exit_code
    said = " ".join(error.format_message().split()).rstrip(".")
    if said[1:2].islower():  # click's own; `PATH is empty` stays as it is
        said = said[:1].lower() + said[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    more = f"; see `{context.command_path} --help`" if context is not None else ""
    click.echo(f"llmgw: {printable_text(said)}{more}", err=True)
    return error.exit_code


def print_nowhere() -> None:
    """What is still in the buffer would be written, and fail, once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

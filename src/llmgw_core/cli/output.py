"""Prints a command's result, for readers that go away and disks that are full."""

from __future__ import annotations

import os
import sys

import click

from llmgw_core.cli.printable import printable_layout
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


def print_nowhere() -> None:
    """What is still in the buffer would be written, and fail, once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

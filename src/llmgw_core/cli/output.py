"""Prints a command's result, for readers that go away and disks that are full."""

from __future__ import annotations

import os
import sys

import click

from llmgw_core.errors import LlmgwError


def show(text: str) -> None:
    """Print `text`. A reader that has gone (`| head`) has read what it wanted: the command's exit code stands."""
    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise LlmgwError(f"cannot print: {error.strerror}") from error

"""What a command that takes its time says on standard error."""

from __future__ import annotations

import sys

import click
from attrs import define

from llmgw_core.cli.printable import printable_text


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

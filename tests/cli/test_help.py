"""What `--help` lists is said to its end."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from llmgw_core.cli import llmgw


def groups(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(command, *words, name)


@pytest.mark.parametrize("words", list(groups(llmgw)), ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut(words: tuple[str, ...]) -> None:
    listed = CliRunner().invoke(llmgw, [*words, "--help"], terminal_width=80).output.partition("Commands:")[2]
    assert listed
    assert [line for line in listed.splitlines() if line.endswith("...")] == []

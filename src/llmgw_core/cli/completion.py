"""`llmgw completion`: the script that makes a shell complete llmgw's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from llmgw_core.cli.output import show

SHELLS = ("bash", "fish", "zsh")


@click.command(
    epilog='bash: add `eval "$(llmgw completion bash)"` to ~/.bashrc. zsh: the same with zsh, to ~/.zshrc.'
    " fish: llmgw completion fish > ~/.config/fish/completions/llmgw.fish"
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete llmgw's commands and options."""
    from llmgw_core.cli import llmgw

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows these three
    show(kind(llmgw, {}, "llmgw", "_LLMGW_COMPLETE").source())

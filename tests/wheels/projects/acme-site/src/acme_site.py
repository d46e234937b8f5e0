"""A site's plugin: every engine runs under numactl, and with one more argument."""

from __future__ import annotations

from collections.abc import Generator

from attrs import evolve

from llmgw_core.engine import Command
from llmgw_core.hooks import hookimpl


@hookimpl(wrapper=True)
def llmgw_build_command() -> Generator[None, Command, Command]:
    command = yield
    return evolve(command, prefix=("numactl", "--interleave=all"), args=(*command.args, "--site-flag"))

"""`llmgw demo`: tells the story, and cleans up after it or leaves the fleet running."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import click

from llmgw_core.cli.asking import ask
from llmgw_core.cli.output import show
from llmgw_core.demo.fleet import LLMGW, DemoFailed, DemoFleet, wait_for
from llmgw_core.demo.story import Story, next_lines

STOPPED_S = 60.0


@click.command()
@click.option("--keep", is_flag=True, help="Leave the fleet running, until Ctrl-C; shows what to type next.")
@click.option("--once", is_flag=True, help="Tell the story once and end (the default).")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything goes; it must not be there yet.  [default: a temporary one, removed afterwards]",
)
@click.option("--llama-server", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A real llama.cpp.")
@click.option("--gguf", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Weights for it.")
def demo(keep: bool, once: bool, directory: Path | None, llama_server: Path | None, gguf: Path | None) -> None:
    """Show a fleet of four nodes on this machine: nodes, replicas, completions, a failure and the rebuild.

    Hardware is made up; certificates, links, processes and requests are real. Exits 0 only if every step was seen.
    """
    if keep and once:
        raise click.UsageError("--keep goes on and --once ends: give one")
    if (llama_server is None) is not (gguf is None):
        raise click.UsageError("--llama-server and --gguf belong together")
    if not Path(LLMGW).with_name("llmgw-sim").exists():
        way = "pip install llmgw-engine-sim"
        raise DemoFailed(f"the demonstration runs the simulated engine, which is not installed: {way}")
    programs = {} if llama_server is None else {"llama-server": str(llama_server.absolute())}
    home = _make(directory)
    try:
        _tell(home, programs, gguf.absolute() if gguf else None, keep=keep)
    finally:
        if directory is None:
            shutil.rmtree(home, ignore_errors=True)


def _make(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="llmgw-demo-"))
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise DemoFailed(f"{directory} is there already; name a directory that is not") from None
    except OSError as error:
        raise DemoFailed(f"cannot make {directory}: {error.strerror}") from error
    return directory.absolute()


def _tell(home: Path, programs: Mapping[str, str], gguf: Path | None, *, keep: bool) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    fleet = DemoFleet(home, programs, say=_say)
    story = Story(fleet, _say, gguf)
    try:
        story.tell()
        if keep:
            _stay(fleet)
    finally:
        _stop_replicas(story)
        fleet.end()


def _interrupt(*_: object) -> None:
    """A demonstration that is ended cleans up, however it is told."""
    raise KeyboardInterrupt


def _stay(fleet: DemoFleet) -> None:
    _say("\nIt goes on running until Ctrl-C. In another terminal:\n")
    for line in next_lines(fleet):
        _say(f"  {line}")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        _say("\nstopping")


def _stop_replicas(story: Story) -> None:
    """Engines outlive their agents: they are asked to go before the agents are."""
    try:
        ask(story.context, "apply", name="nothing", text="")
        wait_for(lambda: not story.replicas(), "every engine stopped", STOPPED_S)
    except Exception as error:
        _say(f"engines may still run: {error}")


def _say(text: str) -> None:
    show(text)

"""`llmgw agent`: the agent of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

DEFAULT_FILE = Path("/etc/llmgw/agent.toml")


@click.command()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The settings file; {DEFAULT_FILE} if that is there. The options below stand above it.",
)
@click.option("--node", help="The node's id: host name, VM name and the certificate's common name.")
@click.option("--server", metavar="https://HOST:7443", help="The control plane.")
@click.option("--identity", metavar="PREFIX", help="PREFIX.crt, PREFIX.key and ca.crt beside them.")
@click.option("--state", metavar="DIRECTORY", help="Where the agent keeps what outlives it.")
@click.option("--nvidia-smi", metavar="PATH", help="The program that lists the GPUs.")
@click.option("--ib-root", metavar="DIRECTORY", help="The tree that lists the InfiniBand adapters.")
@click.option("--machine-id", metavar="FILE", help="The file with the machine's own id.")
@click.option("--serve-ports", metavar="FIRST-LAST", help="Where engines may listen.")
@click.option("--rendezvous-ports", metavar="FIRST-LAST", help="Where shards of several nodes may meet.")
@click.option("--address", metavar="ADDRESS", help="By which other nodes reach this one; as the link's, if not said.")
@click.option("--fabric", "fabrics", multiple=True, metavar="NAME[:HCA,HCA]", help="A fabric that this node is on.")
@click.option("--engine", "programs", multiple=True, metavar="PROGRAM=COMMAND", help="Where an engine's program is.")
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
def agent(config: Path | None, log_json: bool, **given: Any) -> None:
    """Run the agent of this node: it says what the node is, and calls the control plane for ever."""
    import trio

    from llmgw_core.agent.app import run_agent
    from llmgw_core.agent.settings import AgentFile, understand
    from llmgw_core.codec import parse_values
    from llmgw_core.log import set_up_logs

    name, values = _read_settings(config)
    values |= _from_options(**given)
    if not name:
        _require_options(values)
    settings = understand(parse_values(values, name or "agent settings", AgentFile))
    set_up_logs(as_json=log_json)
    trio.run(run_agent, settings)


def _read_settings(config: Path | None) -> tuple[str, dict[str, Any]]:
    """The file's name and its values; without a file none."""
    from llmgw_core.codec import parse_toml, read_toml_text

    path = config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if path is None:
        return "", {}
    try:
        return str(path), parse_toml(read_toml_text(path), str(path))
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from error


def _require_options(values: dict[str, Any]) -> None:
    """Without a file they have to say it all."""
    keys = {"--node": "node", "--server": "server", "--identity": "certificate"}
    missing = [option for option, key in keys.items() if key not in values]
    if missing:
        raise click.UsageError(f"give {', '.join(missing)}, or --config: {DEFAULT_FILE} is not there")


def _from_options(
    identity: str | None, fabrics: tuple[str, ...], programs: tuple[str, ...], **texts: str | None
) -> dict[str, Any]:
    from llmgw_core.cli.identity import identity_files

    values: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
    if identity is not None:
        files = identity_files(identity)
        values |= {"certificate": str(files.certificate), "key": str(files.key), "authority": str(files.authority)}
    if fabrics:
        values["fabrics"] = list(fabrics)
    if programs:
        values["engines"] = dict(split_program(program) for program in programs)
    return values


def split_program(text: str) -> tuple[str, str]:
    """Of `--engine`."""
    program, joint, command = text.partition("=")
    if not (program and joint and command):
        raise click.UsageError(f"--engine {text!r}: write PROGRAM=COMMAND, for example vllm=/opt/vllm/bin/vllm")
    return program, command

"""`llmgw ctl`: an operator's commands."""

from __future__ import annotations

from pathlib import Path

import click

from llmgw_core.cli.context import Context, default_file
from llmgw_core.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "apply": ("llmgw_core.cli.deploying:apply", "Make a catalog what is desired."),
        "backup": ("llmgw_core.cli.fleet:backup", "Copy the store to a file on the control plane's machine."),
        "cert": ("llmgw_core.cli.cert:cert", "Revoke certificates, take it back, and list what is revoked."),
        "drain": ("llmgw_core.cli.draining:drain", "Empty nodes: replacements are ready before originals stop."),
        "drains": ("llmgw_core.cli.draining:drains", "List the nodes that drain."),
        "engine-check": (
            "llmgw_core.cli.engine_check:engine_check",
            "Say whether an engine still accepts every flag that llmgw would pass.",
        ),
        "events": ("llmgw_core.cli.fleet:events", "Show what happened, oldest first."),
        "explain": ("llmgw_core.cli.deploying:explain", "Say where a model could run, and what speaks against it."),
        "fabrics": ("llmgw_core.cli.fleet:fabrics", "List the fabrics, their members, and what refutes them."),
        "gateways": ("llmgw_core.cli.keys:gateways", "List the gateways, and the table that each has taken."),
        "keys": ("llmgw_core.cli.keys:keys", "Make, list and revoke the API keys of users."),
        "logs": ("llmgw_core.cli.replicas:logs", "Print what a replica's engine wrote."),
        "models": ("llmgw_core.cli.replicas:models", "List the models, and how many replicas are ready."),
        "node": ("llmgw_core.cli.fleet:node", "Show all that is known of a node."),
        "nodes": ("llmgw_core.cli.fleet:nodes", "List the nodes."),
        "plan": ("llmgw_core.cli.deploying:plan", "Show what applying a catalog would change."),
        "replica": ("llmgw_core.cli.replicas:replica", "Show all that is known of a replica."),
        "replicas": ("llmgw_core.cli.replicas:replicas", "List the replicas."),
        "rollback": ("llmgw_core.cli.draining:rollback", "Run a model again as before its last change."),
        "rollout": ("llmgw_core.cli.draining:rollout", "Show how far a change of a model is."),
        "scale": ("llmgw_core.cli.deploying:scale", "Run another number of replicas of a model."),
        "undrain": ("llmgw_core.cli.draining:undrain", "Let a node take replicas again."),
        "use": ("llmgw_core.cli.context:use", "Write the context file, so that commands need no flags."),
        "weights": ("llmgw_core.cli.weights:ctl_weights", "Say on which nodes a model's weights are, whole."),
    },
)
@click.option("--server", metavar="https://HOST:7443", help="The control plane, instead of the context file's.")
@click.option("--identity", metavar="PREFIX", help="The operator's PREFIX.crt, PREFIX.key and ca.crt beside them.")
@click.option(
    "--context",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=default_file,
    show_default="$LLMGW_CONTEXT, else ~/.llmgw/context.toml",
    help="The context file.",
)
@click.pass_context
def ctl(click_context: click.Context, server: str | None, identity: str | None, file: Path) -> None:
    """Ask and tell a fleet what to do; check engines."""
    click_context.obj = Context(file, server, identity)

"""`llmgw ctl nodes|node|fabrics|events|backup`: the fleet as the control plane knows it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.asking import Patience, ask, watch
from llmgw_core.cli.engine_report import WAY_ON_A_NODE
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable, printable_text
from llmgw_core.cli.table import render_table

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
watch_option = click.option("--watch", "watched", is_flag=True, help="Show it again every two seconds.")
WATCH_S = 2.0


@click.group(invoke_without_command=True)
@as_json_option
@watch_option
@click.pass_context
def nodes(click_context: click.Context, as_json: bool, watched: bool) -> None:
    """List the nodes: state, GPUs, fabrics, engines, days left on the certificate, and whatever is wrong."""
    if click_context.invoked_subcommand is not None:
        return
    context: Context = click_context.obj
    if watched and as_json:
        raise click.UsageError("--watch is for people and --json for programs: give one")
    if watched:
        watch(WATCH_S, lambda: render_nodes(ask(context, "nodes")))
        return
    found = ask(context, "nodes")
    show(json.dumps(found, indent=2) if as_json else render_nodes(found))


@nodes.command("remove")
@click.argument("node")
@click.pass_obj
def remove(context: Context, node: str) -> None:
    """Forget NODE, which is not connected. Its certificate still counts until it is revoked."""
    ask(context, "remove-node", node=node)
    show(f"removed {node}; if it is never to come back: llmgw ctl cert revoke {node}")


def render_nodes(found: list[dict[str, Any]]) -> str:
    if not found:
        return "no node has ever been here; start an agent with `llmgw agent`"
    header = ("NODE", "STATE", "GPUS", "FABRICS", "ENGINES", "CERT", "SEEN", "TROUBLE")
    return render_table(header, [_row(node) for node in found])


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    facts = node["facts"] or {}
    troubles = node["troubles"]
    more = f" (+{len(troubles) - 1} more: llmgw ctl node {node['name']})" if len(troubles) > 1 else ""
    return (
        node["name"],
        _state(node),
        _gpus(facts),
        ", ".join(fabric["name"] for fabric in facts.get("fabrics", ())) or "-",
        ", ".join(_engine(engine) for engine in facts.get("engines", ()) if engine.get("executable")) or "-",
        f"{node['days_left']} d",
        time_text(node["last_seen"]),
        f"{troubles[0]}{more}" if troubles else "",
    )


def _state(node: dict[str, Any]) -> str:
    return f"{node['state']}, {node['drain']}" if node.get("drain") else str(node["state"])


def _gpus(facts: dict[str, Any]) -> str:
    report = facts.get("gpus", {})
    if report.get("outcome") == "failed":
        return "failed"
    gpus = report.get("gpus", ())
    names = sorted({gpu.get("name") or "unknown" for gpu in gpus})
    return f"{len(gpus)} x {'/'.join(names)}" if gpus else "none"


def _engine(engine: dict[str, Any]) -> str:
    version = f" {engine['version']}" if engine.get("version") else ""
    return f"{engine['engine']}{version} {engine.get('outcome', 'unchecked')}"


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


@click.command()
@click.argument("name")
@as_json_option
@click.pass_obj
def node(context: Context, name: str, as_json: bool) -> None:
    """Show all that is known of NODE."""
    found = ask(context, "node", node=name)
    show(json.dumps(found, indent=2) if as_json else render_node(printable(found)))


def render_node(found: dict[str, Any]) -> str:
    facts = found["facts"] or {}
    lines = [
        f"{found['name']}: {_state(found)}, from {found['address']}, agent {facts.get('agent_version', 'unknown')}",
        f"  first seen  {time_text(found['first_seen'])}",
        f"  last seen   {time_text(found['last_seen'])}",
        f"  certificate {found['days_left']} days left",
    ]
    lines += [f"  TROUBLE     {trouble}" for trouble in found["troubles"]]
    report = facts.get("gpus", {})
    lines += [f"  GPUs        {report.get('reason')}"] if report.get("reason") else []
    lines += [f"  GPU {_index(gpu)}       {_gpu(gpu)}" for gpu in report.get("gpus", ())]
    lines += [f"  port        {_port(port)}" for port in facts.get("infiniband", {}).get("ports", ())]
    lines += [f"  fabric      {_fabric(fabric)}" for fabric in facts.get("fabrics", ())]
    lines += [f"  engine      {_engine_in_full(engine)}" for engine in facts.get("engines", ())]
    return "\n".join(lines)


def _index(gpu: dict[str, Any]) -> str:
    return "?" if gpu.get("index") is None else str(gpu["index"])


def _gpu(gpu: dict[str, Any]) -> str:
    memory = f"{gpu['memory_total_mib']} MiB" if gpu.get("memory_total_mib") is not None else "memory unknown"
    notes = [*(["MIG"] if gpu.get("mig") else []), *([gpu["trouble"]] if gpu.get("trouble") else [])]
    return ", ".join([gpu.get("name") or "unknown", memory, gpu.get("uuid") or "no UUID", *notes])


def _port(port: dict[str, Any]) -> str:
    name = f"{port['hca']['name']}:{port['hca'].get('port', 1)}"
    told = [
        port.get("state") or "state unknown",
        port.get("link_layer") or "link layer unknown",
        port.get("rate") or "",
    ]
    return ", ".join(filter(None, [name, *told, port.get("trouble", "")]))


def _fabric(fabric: dict[str, Any]) -> str:
    hcas = ",".join(f"{hca['name']}:{hca.get('port', 1)}" for hca in fabric["hcas"]) or "no adapters"
    picked = " (picked)" if fabric.get("picked") else ""
    trouble = f"; {fabric['trouble']}" if fabric.get("trouble") else ""
    return f"{fabric['name']}: {hcas}{picked}{trouble}"


def _engine_in_full(engine: dict[str, Any]) -> str:
    from llmgw_core.examine.executable import NOT_FOUND
    from llmgw_core.model.node import NOT_LOOKED_YET

    reason = f": {engine['reason']}" if engine.get("reason") else ""
    if engine.get("reason") == NOT_LOOKED_YET:
        return f"{engine['engine']} is {NOT_LOOKED_YET}"
    if not engine.get("executable"):
        return f"{engine['engine']} is not installed{reason.replace(f' {NOT_FOUND}:', '')}; {WAY_ON_A_NODE}"
    return f"{_engine(engine)}{reason}  [{engine['executable']}]"


@click.command()
@as_json_option
@click.pass_obj
def fabrics(context: Context, as_json: bool) -> None:
    """List the fabrics as stated, their members, and what refutes them."""
    found = ask(context, "fabrics")
    if as_json:
        show(json.dumps(found, indent=2))
        return
    rows = [
        (each["name"], member["node"], member["state"], _fabric(member)) for each in found for member in each["members"]
    ]
    show(render_table(("FABRIC", "NODE", "STATE", "ADAPTERS"), rows) if rows else "no node states a fabric")
    for each in found:
        for reason in each["refuted"]:
            show(printable_text(f"REFUTED {each['name']}: {reason}"))


@click.command()
@click.option("--node", default="", help="Only of this node.")
@click.option("--last", "limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@click.option("--follow", is_flag=True, help="Go on with new ones.")
@as_json_option
@click.pass_obj
def events(context: Context, node: str, limit: int, follow: bool, as_json: bool) -> None:
    """Show what happened, oldest first."""
    import time

    after, patience = 0, Patience()
    if node and not ask(context, "events", node=node, limit=1, after=0):
        if not follow:
            ask(context, "node", node=node)  # raises for one that has never been here
        if not as_json:
            click.echo(printable_text(f"no events of a node {node}"), err=follow)
    while True:
        asked: dict[str, Any] = {"node": node, "limit": limit, "after": after}
        found = patience.ask(context, "events", **asked) if after else ask(context, "events", **asked)
        for event in found or ():
            after = event["id"]
            if not show(json.dumps(event) if as_json else printable_text(_event(event))):
                return
        if not follow:
            return
        time.sleep(WATCH_S)


def _event(event: dict[str, Any]) -> str:
    return f"{time_text(event['at'])}  {event['node'] or '-'}  {event['kind']}: {event['reason']}"


@click.command()
@click.argument("file")
@click.pass_obj
def backup(context: Context, file: str) -> None:
    """Copy the store to FILE, an absolute path on the control plane's machine."""
    show(f"wrote {ask(context, 'backup', file=file)} on the control plane's machine")

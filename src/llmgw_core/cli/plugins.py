"""`llmgw engines`: which engine plugins are in use, and why others are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.output import show
from llmgw_core.cli.table import render_table

if TYPE_CHECKING:
    from llmgw_core.engines import Engines


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def engines(as_json: bool) -> None:
    """List the engine plugins, loaded and refused."""
    from llmgw_core.plugins import load_engines

    found = load_engines()
    if as_json:
        show(json.dumps(_plain(found), indent=2))
        return
    if not found.loaded:
        show("no engine plugin is in use; install one, for example: pip install llmgw-engine-vllm")
    rows = [
        (each.info.name, f"{each.distribution} {each.version}", each.place, ", ".join(each.info.checked_versions))
        for each in found.loaded
    ]
    if rows:
        show(render_table(("ENGINE", "PLUGIN", "FROM", "CHECKED AGAINST"), rows))
    for wrapper in found.site:
        show(f"site plugin {wrapper.name}: {wrapper.distribution} {wrapper.version}, from {wrapper.place}")
    for refused in found.refused:
        show(str(refused))


def _plain(found: Engines) -> dict[str, Any]:
    return {
        "loaded": [
            {
                "engine": each.info.name,
                "distribution": each.distribution,
                "version": each.version,
                "built_from": each.built_from,
                "place": each.place,
                "api": each.info.api,
                "checked_versions": list(each.info.checked_versions),
            }
            for each in found.loaded
        ],
        "site": [
            {"name": each.name, "distribution": each.distribution, "version": each.version, "place": each.place}
            for each in found.site
        ],
        "refused": [
            {
                "name": each.name,
                "distribution": each.distribution,
                "version": each.version,
                "why": each.why,
                "way_out": each.way_out,
            }
            for each in found.refused
        ],
    }

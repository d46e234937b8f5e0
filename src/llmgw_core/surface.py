"""Recorded flag tables: what our own readers took from one engine version's help.

Facts only (names, arity, choices, state), one small JSON file per program and version, in the package that a plugin
names in `EngineInfo.surfaces`. They answer for versions that are not installed, and tell where an option stands.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from llmgw_core.engine.flags import ONE, Arity, Flag, FlagState, FlagTable, Surface
from llmgw_core.engine.info import EngineInfo
from llmgw_core.errors import LlmgwError


def read_surfaces(info: EngineInfo, program: str) -> tuple[Surface, ...]:
    """All recorded tables of a program, oldest version first; empty where the plugin records none."""
    if info.surfaces is None:
        return ()
    try:
        return _read_package(info.surfaces, program)
    except (ImportError, OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LlmgwError(
            f"the records of engine plugin {info.name} in {info.surfaces} cannot be read: {why}"
        ) from error


@cache
def _read_package(package: str, program: str) -> tuple[Surface, ...]:
    named = re.compile(re.escape(program) + r"-(\w*\d.*)\.json")
    found = [(match[1], entry) for entry in files(package).iterdir() if (match := named.fullmatch(entry.name))]
    found.sort(key=lambda pair: version_key(pair[0]))
    return tuple(
        Surface(program, version, parse_surface(json.loads(entry.read_text(encoding="utf-8"))))
        for version, entry in found
    )


def version_key(version: str) -> tuple[tuple[int, int | str], ...]:
    """Orders versions as people read them: numbers as numbers (`0.9.2` before `0.10.2`, `b10068` before `b10991`)."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in re.findall(r"\d+|[a-z]+", version.lower()))


def render_surface(table: FlagTable) -> dict[str, Any]:
    """The table as JSON values; what is as usual is left out, and so is every word of prose."""
    return {"flags": [_render_flag(flag) for flag in table.flags]}


def _render_flag(flag: Flag) -> dict[str, Any]:
    rendered = {
        "names": list(flag.names),
        "hidden": list(flag.hidden),
        "arity": [flag.arity.least, flag.arity.most] if flag.arity != ONE else None,
        "choices": list(flag.choices),
        "open_choices": flag.open_choices,
        "listed_value": flag.listed_value,
        "state": flag.state.value if flag.state is not FlagState.LIVE else None,
        "replaced_by": list(flag.replaced_by),
    }
    return {key: value for key, value in rendered.items() if value}


def parse_surface(parsed: dict[str, Any]) -> FlagTable:
    """The table that `render_surface` wrote."""
    return FlagTable(tuple(_parse_flag(flag) for flag in parsed["flags"]))


def _parse_flag(parsed: dict[str, Any]) -> Flag:
    return Flag(
        names=tuple(parsed["names"]),
        hidden=tuple(parsed.get("hidden", ())),
        arity=Arity(*parsed["arity"]) if "arity" in parsed else ONE,
        choices=tuple(parsed.get("choices", ())),
        open_choices=parsed.get("open_choices", False),
        listed_value=parsed.get("listed_value", False),
        state=FlagState(parsed.get("state", "live")),
        replaced_by=tuple(parsed.get("replaced_by", ())),
    )

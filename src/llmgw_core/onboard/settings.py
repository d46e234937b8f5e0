"""The agent.toml of a new node.

In: a request, and what the machine's file says already.  Out: a text.  Pure.
Rules: what the request says stands above what was there; what it leaves open, and what onboarding has no option for,
stays; any value is written so that TOML reads the same.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from llmgw_core.agent.settings import AgentFile, understand
from llmgw_core.codec import BadFile, parse_toml, parse_values
from llmgw_core.errors import LlmgwError
from llmgw_core.onboard.request import NO_FABRIC, SETTINGS, NodeRequest

STATE = "/var/lib/llmgw/agent"
HEADER = "# Written by llmgw-onboard-node. It keeps what you add here, and replaces what its options say.\n"


def plan_values(request: NodeRequest, before: str | None) -> dict[str, Any]:
    """Raises where a value cannot be meant, or what was there is no TOML."""
    values: dict[str, Any] = {**parse_toml(before or "", SETTINGS), **_stated(request)}
    if request.engines:
        values["engines"] = {**_table(values.get("engines")), **request.engines}
    understand(parse_values(values, SETTINGS, AgentFile))
    return values


def node_of(before: str | None) -> str:
    """Which node the machine's settings say that it is; empty: none."""
    try:
        said = tomllib.loads(before or "").get("node", "")
    except tomllib.TOMLDecodeError:
        return ""
    return said if isinstance(said, str) else ""


def state_of(before: str | None) -> str:
    """Where its agent keeps what outlives it."""
    try:
        said = tomllib.loads(before or "").get("state", "")
    except tomllib.TOMLDecodeError:
        said = ""
    return said if isinstance(said, str) and said else STATE


def settings_problems(request: NodeRequest, before: str | None) -> tuple[str, ...]:
    if NO_FABRIC in request.fabrics and len(request.fabrics) > 1:
        return (f"--fabric {NO_FABRIC} means that it is on none, and others are named too: give one or the other",)
    try:
        render_settings(plan_values(request, before)).encode()
    except BadFile as error:
        return tuple(f"{line}: mend it there, or change the option" for line in str(error).splitlines())
    except LlmgwError as error:
        return tuple(str(error).splitlines())
    except UnicodeEncodeError:
        return ("a path or an engine's command is not text in UTF-8: TOML could not hold it",)
    return ()


def render_settings(values: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{_text(name)} = {_value(value)}" for name, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{_text(name)}]", *(f"{_text(each)} = {_value(value)}" for each, value in table.items())]
    return HEADER + "".join(f"{line}\n" for line in lines)


def _stated(request: NodeRequest) -> dict[str, Any]:
    always = {
        "node": request.node,
        "server": request.server,
        "certificate": request.certificate,
        "key": request.key,
        "authority": request.authority,
    }
    optional = {"nvidia_smi": request.nvidia_smi, "ib_root": request.ib_root}
    fabrics = {"fabrics": [name for name in request.fabrics if name != NO_FABRIC]} if request.fabrics else {}
    return {**always, **{name: text for name, text in optional.items() if text}, **fabrics}


def _table(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """A basic string, which takes JSON's escapes; DEL is the one character that JSON leaves as it is and TOML not."""
    if text and text.isascii() and text.replace("_", "").isalnum() and text in AgentFile.__annotations__:
        return text  # a key
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""The agent.toml of a new node.

In: a request, and what the machine's file says already.  Out: a text.  Pure.
Rules: what the request says stands above what was there; what it leaves open, and what onboarding has no option for,
stays; any value is written so that TOML reads the same.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Container, Mapping
from typing import Any

from llmgw_core.agent.settings import AgentFile, understand
from llmgw_core.codec import BadFile, parse_toml, parse_values
from llmgw_core.errors import LlmgwError
from llmgw_core.onboard.request import IB_ROOT, NO_FABRIC, SETTINGS, NodeRequest

STATE = "/var/lib/llmgw/agent"
_FAULTLESS = {"node": "n", "server": "https://n", "certificate": "n", "key": "n", "authority": "n"}
HEADER = "# Written by llmgw-onboard-node. It keeps what you add here, and replaces what its options say.\n"


def plan_values(request: NodeRequest, before: str | None) -> dict[str, Any]:
    """Raises where a value cannot be meant, or what was there is no TOML."""
    values = _merged(request, before)
    understand(parse_values(values, SETTINGS, AgentFile))
    return values


def node_of(before: str | None) -> str:
    """Which node the machine's settings say that it is; empty: none."""
    return _text_of(before, "node")


def state_of(before: str | None) -> str:
    """Where its agent keeps what outlives it."""
    return _text_of(before, "state") or STATE


def ib_root_of(before: str | None) -> str:
    """Where it says that the adapters are."""
    return _text_of(before, "ib_root") or IB_ROOT


def _text_of(before: str | None, name: str) -> str:
    try:
        said = tomllib.loads(before or "").get(name, "")
    except tomllib.TOMLDecodeError:
        return ""
    return said if isinstance(said, str) else ""


def settings_problems(request: NodeRequest, before: str | None) -> tuple[str, ...]:
    """All that cannot be meant, of the options and of what stays of the machine's file."""
    found = []
    if NO_FABRIC in request.fabrics and len(request.fabrics) > 1:
        found.append(f"--fabric {NO_FABRIC} means that it is on none, and others are named too: give one or the other")
    stated = _stated(request)
    found += _each_problem(stated)
    try:
        values = _merged(request, before)
        found += [f"{SETTINGS}: {line}" for line in _each_problem(values, but=stated)]
        if not found:
            plan_values(request, before)
            render_settings(values).encode()
    except BadFile as error:
        found += [f"{line}: mend it there, or change the option" for line in str(error).splitlines()]
    except LlmgwError as error:
        found += str(error).splitlines()
    except UnicodeEncodeError:
        found.append(f"a path or a command, of an option or in {SETTINGS}, is not text in UTF-8: TOML cannot hold it")
    return tuple(dict.fromkeys(found))


def _each_problem(values: Mapping[str, Any], but: Container[str] = ()) -> list[str]:
    """Of each value by itself, so that a wrong one hides no other. Raises `BadFile` for what the file may not hold."""
    parse_values({**_FAULTLESS, **values}, SETTINGS, AgentFile)
    found = []
    for name, value in values.items():
        try:
            if name not in but:
                understand(parse_values({**_FAULTLESS, name: value}, SETTINGS, AgentFile))
        except LlmgwError as error:
            found += str(error).splitlines()
    return found


def render_settings(values: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{_key(name)}]", *(f"{_text(each)} = {_value(value)}" for each, value in table.items())]
    return HEADER + "".join(f"{line}\n" for line in lines)


def _merged(request: NodeRequest, before: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {**parse_toml(before or "", SETTINGS), **_stated(request)}
    if request.engines:
        values["engines"] = {**_table(values.get("engines")), **request.engines}
    return values


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


def _key(name: str) -> str:
    return name if name in AgentFile.__annotations__ else _text(name)


def _text(text: str) -> str:
    """A basic string, which takes JSON's escapes; DEL is the one character that JSON leaves as it is and TOML not."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

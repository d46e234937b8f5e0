"""Runs an engine-check on a node for an operator.

Rules: of one node and engine one check runs at a time, and all who ask meanwhile wait for it; a node is told only when
its snapshot is there; whoever asks no longer, waits no longer.
"""

from __future__ import annotations

from typing import Any

import trio

from llmgw_core.control.arguments import Arguments, BadQuestion, argument, node_argument
from llmgw_core.control.fleet import Check, Connection
from llmgw_core.control.plane import Plane
from llmgw_core.net.link import LinkClosed
from llmgw_core.wire.message import CheckEngine

CHECK_S = 620.0
"""How long an engine-check on a node may take: both of its commands, and a little."""
CHECKS_AT_ONCE = 64
ENGINE_CHARACTERS = 100


async def check_engine(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """Run an engine-check on a node now; what `engine-check --json` prints there."""
    node = node_argument(plane, arguments)
    engine = argument(arguments, "engine", str, "")
    if len(engine) > ENGINE_CHARACTERS:
        raise BadQuestion(f"engine: a name of {len(engine)} characters, over {ENGINE_CHARACTERS}")
    connection = node.connection
    if connection is None or not connection.live:
        raise BadQuestion(f"{node.name} is not connected" + (" yet: it is just reporting" if connection else ""))
    check = connection.checks.get(engine) or await _begin(plane, node.name, connection, engine)
    return await _outcome(node.name, connection, check)


async def _begin(plane: Plane, name: str, connection: Connection, engine: str) -> Check:
    if len(connection.checks) >= CHECKS_AT_ONCE:
        raise BadQuestion(f"{name} runs {len(connection.checks)} checks already")
    check = Check(next(plane.fleet.numbers), engine)
    connection.checks[engine] = check
    said = False
    try:
        await connection.say(CheckEngine(check.id, engine))
        said = True
    except LinkClosed as error:
        raise BadQuestion(f"{name} has gone: {error}") from None
    finally:
        if not said:
            connection.finish(check)
    return check


async def _outcome(name: str, connection: Connection, check: Check) -> dict[str, Any]:
    with trio.move_on_after(CHECK_S) as waiting:
        await check.done.wait()
    if waiting.cancelled_caught:
        connection.finish(check)
        raise BadQuestion(f"{name} has not answered within {CHECK_S:g} s")
    if check.answer is None:
        raise BadQuestion(f"{name} has gone while it was checking")
    if check.answer.report is None:
        raise BadQuestion(f"{name}: {check.answer.reason}")
    return check.answer.report

"""Reads a shard's log on its node for an operator."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.fleet import Connection, Read
from llmgw_core.control.plane import Plane
from llmgw_core.model.deployment import ReplicaRecord
from llmgw_core.net.link import LinkClosed
from llmgw_core.wire.facts import clipped
from llmgw_core.wire.message import LogRead, ReadLog

READ_S = 20.0
READS_AT_ONCE = 64
MOST_LINES = 10_000
CURSOR_CHARACTERS = 200


def replica_argument(plane: Plane, arguments: Arguments) -> ReplicaRecord:
    id = argument(arguments, "replica", str, "")
    record = plane.deployment.records.get(id)
    if record is None and id in plane.deployment.wanted:
        raise BadQuestion(f"{id} is a model; its replicas are {id}/1 and so on, see `llmgw ctl replicas`")
    if record is None:
        raise BadQuestion(f"no replica {clipped(id, 80)!r} has ever been here; `llmgw ctl replicas` lists them")
    return record


async def read_log(plane: Plane, operator: str, arguments: Arguments) -> dict[str, Any]:
    """A part of a shard's log, and the cursor to go on from."""
    record = replica_argument(plane, arguments)
    rank, lines = argument(arguments, "rank", int, 0), argument(arguments, "lines", int, 100)
    if not 0 <= lines <= MOST_LINES:
        raise BadQuestion(f"lines: expected 0 to {MOST_LINES}, got {lines}")
    first_failure = argument(arguments, "first_failure", bool, False)
    cursor = clipped(argument(arguments, "cursor", str, ""), CURSOR_CHARACTERS)
    node, generation = _where(record, rank, first_failure)
    connection = plane.fleet.nodes[node].connection if node in plane.fleet.nodes else None
    if connection is None or not connection.live:
        raise BadQuestion(f"{node}, where {record.id}#{rank} is, is not connected: its log cannot be read now")
    asked = ReadLog(0, record.id, rank, generation, first_failure=first_failure, cursor=cursor, lines=lines)
    answer = await _ask(plane, node, connection, asked)
    if answer.reason:
        raise BadQuestion(f"{node}: {answer.reason}")
    return {**attrs.asdict(answer), "node": node}


def _where(record: ReplicaRecord, rank: int, first_failure: bool) -> tuple[str, int]:
    """The node and the generation: of the attempt that serves, or of the failure that is meant."""
    if record.serving is not None and not first_failure:
        launch = record.serving.launch
        if not 0 <= rank < len(launch.places):
            raise BadQuestion(f"{record.id} has no rank {rank}: it has 0 to {len(launch.places) - 1}")
        return launch.places[rank].node, launch.generation
    moved = record.move.failure if record.move is not None else None
    failure = (record.first_failure or moved) if first_failure else record.last_failure
    if failure is not None and failure.node:
        return failure.node, failure.generation
    if first_failure:
        raise BadQuestion(f"{record.id} has not failed, as far as is remembered")
    raise BadQuestion(f"{record.id} runs nowhere now; `llmgw ctl explain {record.model}` says why")


async def _ask(plane: Plane, node: str, connection: Connection, asked: ReadLog) -> LogRead:
    if len(connection.reads) >= READS_AT_ONCE:
        raise BadQuestion(f"{node} reads {len(connection.reads)} logs already")
    id, read = next(plane.fleet.numbers), Read()
    connection.reads[id] = read
    try:
        with trio.fail_after(READ_S):
            await connection.say(attrs.evolve(asked, id=id))
            await read.done.wait()
    except trio.TooSlowError:
        raise BadQuestion(f"{node} has not answered within {READ_S:g} s") from None
    except LinkClosed as error:
        raise BadQuestion(f"{node} has gone: {error}") from None
    finally:
        connection.reads.pop(id, None)
    if read.answer is None:
        raise BadQuestion(f"{node} has gone while it was asked")
    return read.answer

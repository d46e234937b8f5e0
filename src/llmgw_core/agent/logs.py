"""Parts of a shard's log, as the reaper writes it: numbered files of which the last grows.

In: a question.  Out: its answer, bounded; never an exception. This may block.
Rules: a cursor names generation, file and place in it, so it goes on over a rotation; what was rotated away meanwhile
is said; who follows the latest generation is taken along to the next one.
"""

from __future__ import annotations

import codecs
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from llmgw_core.agent.shard_files import ShardFiles
from llmgw_core.plan.exit_words import without_key
from llmgw_core.wire.message import LogRead, ReadLog

MOST_BYTES = 256 * 1024


@frozen
class _Cursor:
    generation: int
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.generation}:{self.number}:{self.offset}"


def read_log(files: ShardFiles, ask: ReadLog) -> LogRead:
    generations = files.generations(ask.replica, ask.rank)
    wanted = _wanted(files, ask, generations)
    if wanted is None:
        return LogRead(ask.id, reason=_why_none(ask))
    try:
        text, cursor = _read(files, ask, wanted, generations)
    except OSError as error:
        return LogRead(ask.id, generation=wanted, reason=f"the log cannot be read: {error.strerror or error}")
    key = files.key_of(ask.replica, ask.rank, cursor.generation)
    return LogRead(ask.id, without_key(text, key), str(cursor), cursor.generation)


def _wanted(files: ShardFiles, ask: ReadLog, generations: list[int]) -> int | None:
    if ask.first_failure:
        kept = files.first_failure(ask.replica, ask.rank)
        return kept if not ask.generation or kept == ask.generation else _if_there(ask.generation, generations)
    if ask.generation:
        return _if_there(ask.generation, generations)
    return generations[0] if generations else None


def _if_there(generation: int, generations: list[int]) -> int | None:
    return generation if generation in generations else None


def _why_none(ask: ReadLog) -> str:
    shard = f"{ask.replica}#{ask.rank}"
    if ask.first_failure:
        return f"no log of a first failure of {shard} is kept here"
    of = f" of generation {ask.generation}" if ask.generation else ""
    return f"no log{of} of {shard} is kept here"


def _read(files: ShardFiles, ask: ReadLog, wanted: int, generations: list[int]) -> tuple[str, _Cursor]:
    cursor = _parse(ask.cursor)
    if cursor is None or (cursor.generation != wanted and cursor.generation not in generations):
        return _tail(_logs(files, ask, wanted), wanted, ask.lines)
    text, after = _go_on(_logs(files, ask, cursor.generation), cursor)
    if not text and after.generation < wanted:
        newer = min(each for each in generations if each > after.generation)
        return _go_on(_logs(files, ask, newer), _Cursor(newer, 0, 0))
    return text, after


def _parse(text: str) -> _Cursor | None:
    with suppress(ValueError):
        generation, number, offset = map(int, text.split(":"))
        return _Cursor(generation, number, offset)
    return None


def _logs(files: ShardFiles, ask: ReadLog, generation: int) -> dict[int, Path]:
    directory = files.directory(ask.replica, ask.rank, generation) / "logs"
    found = [path for path in directory.glob("*.log") if path.stem.isdigit()]
    return {int(path.stem): path for path in sorted(found, key=lambda path: int(path.stem))}


def _tail(logs: dict[int, Path], generation: int, lines: int) -> tuple[str, _Cursor]:
    read, cursor = b"", _Cursor(generation, 0, 0)
    for number in reversed(logs):
        size = logs[number].stat().st_size
        if not cursor.number:
            cursor = _Cursor(generation, number, size)
        part = _bytes(logs[number], max(0, size - (MOST_BYTES - len(read))), MOST_BYTES - len(read))
        read = part + read
        if read.count(b"\n") > lines or len(read) >= MOST_BYTES:
            break
    kept = read.splitlines(keepends=True)[-lines:] if lines > 0 else []
    return b"".join(kept).decode("utf-8", "replace"), cursor


def _go_on(logs: dict[int, Path], cursor: _Cursor) -> tuple[str, _Cursor]:
    """From the cursor on, over as many files as fit."""
    gone = logs and cursor.number and cursor.number not in logs
    text = "llmgw: a part of the log was rotated away\n" if gone else ""
    room, at = MOST_BYTES, cursor
    for number, path in logs.items():
        if number < cursor.number or room <= 0:
            continue
        offset = cursor.offset if number == cursor.number else 0
        part, used = _whole_characters(_bytes(path, offset, room))
        text, room, at = text + part, room - used, _Cursor(cursor.generation, number, offset + used)
        if path.stat().st_size > at.offset:
            break
    return text, at


def _bytes(path: Path, offset: int, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(most)


def _whole_characters(data: bytes) -> tuple[str, int]:
    """The text, and the bytes of it: a character that is cut at the end is left for the next time."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(data) - len(decoder.getstate()[0])
